--- Retry one failed job, due immediately and with all attempts.
--- @queue   job!
--- @key   job                  hash         the job; must end in `job:` and its id
--- @key   failed               zset         failed jobs by time
--- @key   scheduled            zset         delayed and prioritized jobs
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @returns text `ok`, `not_found` or `not_failed`
--- @error   the job key does not end in `job:` and the id
--- @cost    O(log N)

local history = require("history")
local record = require("record")
local retry = require("retry")

local job = record.load(queue, job_id)
if not job then
  return "not_found"
elseif job.state ~= "failed" then
  return "not_failed"
end
redis.call("ZREM", failed_key, job_id)
history.append(queue, job_id, { event = "retried", ended = now_ms })
retry.afresh(queue, job_id, job, now_ms)
return "ok"
