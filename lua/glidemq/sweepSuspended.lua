--- Fail suspended jobs whose deadline has passed.
--- @queue   key_prefix
--- @key   suspended            zset         suspended jobs by deadline
--- @key   events               stream       lifecycle events
--- @key   failed               zset         failed jobs by time
--- @key   metrics              hash         failures per minute
--- @arg   now_ms               int          epoch ms
--- @arg   key_prefix           text         what every key of the queue begins with, trailing colon included
--- @returns int jobs failed, at most 100 per call
--- @cost    O(log N) per job

local failure = require("failure")
local record = require("record")
local release = require("release")

local most_jobs, reason = 100, "Suspend timeout exceeded"

local failed = 0
local now_text = string.format("%.0f", now_ms)
for _, job_id in ipairs(redis.call("ZRANGE", suspended_key, 0, now_text, "BYSCORE", "LIMIT", 0, most_jobs)) do
  local job = record.load(queue, job_id)
  redis.call("ZREM", suspended_key, job_id)
  if job and job.state == "suspended" then
    failure.record(queue, job_id, reason, now_ms, "processedOn", now_ms)
    release.forfeit(queue, job, now_ms)
    failure.announce(queue, job_id, reason, now_ms, job.processedOn)
    failed = failed + 1
  end
end
return failed
