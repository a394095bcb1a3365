--- Cancel a job as `glidemq_revoke` does, and decide its dependents if it will never run.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   ratelimited          zset         groups that wait for their limits
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group of its entry
--- @returns text `revoked`, `flagged` or `not_found`
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N); it changes at most 100 jobs that wait

local history = require("history")
local propagation = require("propagation")
local revocation = require("revocation")
local wake = require("wake")

-- Jobs that wait in other queues are decided about, too, unless these may be on other servers of a cluster. They, and
-- those beyond the bound, are notified when the reconciler reads their flow.

local outcomes = propagation.new(queue, now_ms, 100)
history.append(queue, job_id, { event = "cancelled", ended = now_ms })
local reply = revocation.revoke(queue, job_id, now_ms, group)
propagation.finish(outcomes)
if reply == "flagged" then
  wake.cancel(queue, job_id)
end
return reply
