--- Set an option, or set it back to its default.
--- @arg  option name  its name; a queue's own is `heartbeat-<queue>`
--- @arg  value  text? its value
--- @returns nil
--- @cost    O(1)

local older = require("older")

if value then
  return run("config.set", 0, { older.option(option), value })
end
return run("config.unset", 0, { older.option(option) })
