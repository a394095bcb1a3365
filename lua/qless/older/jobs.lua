--- Return the ids of jobs in a state. Scheduled jobs that are due stay where they are.
--- @arg  state text `running`, `stalled`, `scheduled`, `depends` or `recurring`, or `complete`
--- @arg* words text the time, the queue (neither for `complete`), an offset and a count
--- @returns an array of ids: all, or as many as are counted; of those that are complete 25
--- @error   an unknown state
--- @cost    O(log N + M) for M found

local calls = require("calls")
local older = require("older")

local is_complete = state == "complete"
local now = is_complete and 0 or calls.number("Jobs", "now", table.remove(words, 1))
local queue = not is_complete and calls.name("Jobs", "queue", table.remove(words, 1))
older.most("Jobs", words, 2)
local offset = calls.offset("Jobs", "offset", words[1] or 0)
local count = words[2] and calls.count("Jobs", "count", words[2])
if is_complete then
  return run("jobs", now, { state, offset, count })
elseif state == "scheduled" then
  -- The command makes those ready that are due.
  return redis.call("ZRANGEBYSCORE", "ql:q:" .. queue .. "-scheduled", "-inf", "+inf", "LIMIT", offset, count or -1)
elseif state == "running" then
  -- The command also lists those whose locks expire at this very time, which are stalled.
  return redis.call("ZRANGEBYSCORE", "ql:q:" .. queue .. "-locks", "(" .. now, "+inf", "LIMIT", offset, count or -1)
end
return run("jobs", now, { state, queue, offset, count or -1 })
