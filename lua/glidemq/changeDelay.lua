--- Change when a job that has not started is due.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   job_id               text?        the job
--- @arg   delay_ms             int?         counted from now; at least 0
--- @arg   now_ms               int?         epoch ms
--- @arg   group                text?        consumer group of its entry
--- @returns text `ok`, `no_op`, `error:invalid_delay`, `error:not_found`, `error:not_in_stream`, `error:not_in_scheduled` or `error:invalid_state`
--- @cost    O(log N)

local reschedule = require("reschedule")

return reschedule.delay(queue, job_id, group, delay_ms, now_ms)
