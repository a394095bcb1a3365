--- Return the ids of jobs in a state.
--- @arg  state text `complete`, or `running`, `stalled`, `scheduled`, `depends` or `recurring` of a queue
--- @arg* words text the queue (not for `complete`), an offset and a count
--- @returns an array of ids
--- @cost    O(log N + M) for M found

local calls = require("calls")
local places = require("places")

local queue = state ~= "complete" and table.remove(words, 1)
local offset = calls.number("Jobs", "offset", words[1] or 0)
local count = calls.number("Jobs", "count", words[2] or 25)
if state == "complete" then
  return redis.call("ZREVRANGE", "ql:completed", offset, offset + count - 1)
end
local ranges = {
  running = { "-locks", now, "+inf" },
  stalled = { "-locks", "-inf", now },
  scheduled = { "-scheduled", "-inf", "+inf" },
  depends = { "-depends", "-inf", "+inf" },
  recurring = { "-recur", "-inf", "+inf" },
}
local range = ranges[state] or calls.refuse("Jobs", "Unknown type " .. state)
local key = "ql:q:" .. calls.text("Jobs", "queue", queue) .. range[1]
if state == "scheduled" then
  places.move_due(now, queue)
end
return redis.call("ZRANGEBYSCORE", key, range[2], range[3], "LIMIT", offset, count)
