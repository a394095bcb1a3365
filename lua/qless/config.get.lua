--- Return an option, or all of them.
--- @arg* words text none, or an option
--- @returns JSON of all, or the value; nil when it is not known
--- @cost    O(1)

local config = require("config")

if words[1] then
  return redis.call("HGET", "ql:config", words[1]) or config.defaults()[words[1]]
end
local options = config.defaults()
local set = redis.call("HGETALL", "ql:config")
for index = 1, #set, 2 do
  options[set[index]] = set[index + 1]
end
return cjson.encode(options)
