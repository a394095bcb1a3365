--- Count the jobs of one queue, or of all.
--- @arg* words text none, or a queue
--- @returns JSON: one object, or an array in the order in which the queues were first seen
--- @cost    O(log N) per queue and scheduled job that is due

local places = require("places")

local function count(queue)
  local key = "ql:q:" .. queue
  places.move_due(now, queue)
  local stalled = redis.call("ZCOUNT", key .. "-locks", 0, now)
  return {
    name = queue,
    waiting = redis.call("ZCARD", key .. "-work"),
    running = redis.call("ZCARD", key .. "-locks") - stalled,
    stalled = stalled,
    scheduled = redis.call("ZCARD", key .. "-scheduled"),
    depends = redis.call("ZCARD", key .. "-depends"),
    recurring = redis.call("ZCARD", key .. "-recur"),
    paused = redis.call("SISMEMBER", "ql:paused_queues", queue) == 1,
  }
end

if words[1] then
  return cjson.encode(count(words[1]))
end
local counted = {}
for index, queue in ipairs(redis.call("ZRANGE", "ql:queues", 0, -1)) do
  counted[index] = count(queue)
end
return cjson.encode(counted)
