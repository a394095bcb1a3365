--- Change the priority of a job that has not started.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   job_id               text?        the job
--- @arg   priority             int?         the new priority; at least 0
--- @arg   group                text?        consumer group of its entry
--- @returns text `ok`, `no_op`, `error:invalid_priority`, `error:not_found`, `error:not_in_stream`, `error:not_in_scheduled` or `error:invalid_state`
--- @cost    O(log N)

local reschedule = require("reschedule")

return reschedule.priority(queue, job_id, group, priority)
