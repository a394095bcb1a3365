--- Cancel a job: fail it if it has not started, otherwise flag it.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group of its entry
--- @returns text `revoked`, `flagged` or `not_found`
--- @cost    O(log N)

local revocation = require("revocation")

return revocation.revoke(queue, job_id, now_ms, group)
