--- Count the jobs of one queue, or of all.
--- @arg* words text none, or a queue
--- @returns JSON: one object, or an array in the order in which the queues were first seen
--- @cost    O(log N) per queue and scheduled job that is due

local places = require("places")

local function count(queue)
  places.move_due(now, queue)
  return places.count(now, queue)
end

if words[1] then
  return cjson.encode(count(words[1]))
end
local counted = {}
for index, queue in ipairs(redis.call("ZRANGE", "ql:queues", 0, -1)) do
  counted[index] = count(queue)
end
return cjson.encode(counted)
