--- Track a job, which retention then keeps, or stop tracking it.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   tracked              zset         tracked jobs by when that began
--- @key   completed            zset         completed jobs by time
--- @key   failed               zset         failed jobs by time
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   is_tracked           flag         track it; else track it no more
--- @arg   limit                int          at least 1; most tracked jobs of the queue, at most 1,000
--- @returns text `ok`; `not_found`; or `too_many` when as many are tracked, and then nothing was changed
--- @error   the id key does not end in `:id`; or when the limit is 0 or above 1,000
--- @cost    O(log N); O(T) for T tracked jobs when there are as many as the limit

local tracking = require("tracking")
local validate = require("validate")

validate.check_limit("track", limit)
if limit > 1000 then
  validate.refuse("track", "'limit' is above 1000")
end
if redis.call("EXISTS", queue .. "job:" .. job_id) == 0 then
  redis.call("ZREM", tracked_key, job_id)
  return "not_found"
elseif is_tracked then
  return tracking.add(queue, job_id, now_ms, limit)
end
return tracking.drop(queue, job_id)
