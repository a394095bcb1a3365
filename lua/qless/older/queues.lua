--- Count the jobs of one queue, or of all. Scheduled jobs that are due stay where they are.
--- @arg  now   number the time in seconds
--- @arg  queue name?  one queue
--- @returns JSON: one object, or an array in the order in which the queues were first seen
--- @cost    O(log N) per queue

local older = require("older")
local places = require("places")

local function count(each)
  local counts = places.count(now, each)
  counts.paused = nil
  return counts
end

if queue then
  return cjson.encode(count(queue))
end
local counted = {}
for index, each in ipairs(redis.call("ZRANGE", "ql:queues", 0, -1)) do
  counted[index] = count(each)
end
return older.array(counted)
