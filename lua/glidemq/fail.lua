--- Record a failed attempt: schedule the retry, or fail the job for good.
--- @queue   job!
--- @key   stream               stream       ready jobs
--- @key   failed               zset         failed jobs by time
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @key   job                  hash         the job; must end in `job:` and its id
--- @key   metrics              hash         failures per minute
--- @record  attempt the arguments that follow are its fields
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   failed_reason        text         why
--- @arg   now_ms               int          epoch ms
--- @arg   max_attempts         int =0       attempts allowed; 0 and 1 both mean no retry
--- @arg   backoff_ms           int =0       how long before the retry
--- @arg   group                text =workers consumer group of the entry
--- @arg   remove_mode          text =0      retention: `true`, `count`, `age_count`, or `0` to keep all
--- @arg   remove_count         int =0       failed jobs to keep
--- @arg   remove_age_s         int =0       seconds to keep them
--- @arg   broadcast            flag =0      leave the entry on the stream, count attempts per consumer group and retain everything
--- @end     attempt
--- @returns text `retrying` or `failed`; `failed` also for a job that is gone
--- @error   the job key does not end in `job:` and the id
--- @cost    O(log N)

local active = require("active")
local record = require("record")
local retry = require("retry")

local job = record.load(queue, attempt.job_id)
active.leave(queue, attempt.job_id, attempt.entry_id, attempt.group, attempt.broadcast, not job)
-- A cancelled job has failed already; only the entry it left behind was still there.
if not job or (job.revoked == "1" and record.has_ended(job)) then
  return "failed"
end
if retry.again(queue, attempt, job) then
  return "retrying"
end
retry.give_up(queue, attempt, job)
return "failed"
