--- Return an option, or all of them.
--- @arg  option name? its name; a queue's own is `heartbeat-<queue>`
--- @returns JSON of all, or the value; nil when it is not known
--- @cost    O(1)

local older = require("older")

if option then
  return run("config.get", 0, { older.option(option) })
end
local named = {}
for name, value in pairs(cjson.decode(run("config.get", 0, {}))) do
  local queue = name:match("^(.+)%-heartbeat$")
  named[queue and "heartbeat-" .. queue or name] = value
end
return cjson.encode(named)
