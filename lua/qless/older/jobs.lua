--- Return the ids of jobs in a state. Scheduled jobs that are due stay where they are.
--- @arg  state text `complete`, or `running`, `stalled`, `scheduled`, `depends` or `recurring`
--- @arg* words text for `complete` an offset and a count, else the time, the queue, an offset and a count
--- @returns an array of ids
--- @cost    O(log N + M) for M found

local calls = require("calls")

if state == "complete" then
  return run("jobs", 0, { state }, words)
end
local now = calls.number("Jobs", "now", table.remove(words, 1))
if state ~= "scheduled" then
  return run("jobs", now, { state }, words)
end
local key = "ql:q:" .. calls.text("Jobs", "queue", words[1]) .. "-scheduled"
local offset = calls.number("Jobs", "offset", words[2] or 0)
return redis.call("ZRANGE", key, offset, offset + calls.number("Jobs", "count", words[3] or 25) - 1)
