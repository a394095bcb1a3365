--- Say when the next delayed job or rate-limited group is due.
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @returns int epoch ms, possibly past; -1 when nothing waits
--- @cost    O(log N) per priority in use

local scheduled = require("scheduled")

local earliest
local band, due = scheduled.first(scheduled_key)
while band do
  earliest = math.min(earliest or due, due)
  band, due = scheduled.first(scheduled_key, band + 1)
end
local group = redis.call("ZRANGE", ratelimited_key, 0, 0, "WITHSCORES")
if group[2] then
  earliest = math.min(earliest or math.huge, tonumber(group[2]))
end
return earliest or -1
