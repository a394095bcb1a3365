--- Create jobs of one queue, each as `glidemq_addJob` does.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   skip_events          flag         emit no `added` event
--- @arg   job_count            int #jobs    how many follow
--- @each    jobs NewJob: a job to create
--- @like    addJob.job
--- @end     jobs
--- @returns texts per job its id, `duplicate`, `ERR:COST_EXCEEDS_CAPACITY` or `ERR:ID_EXHAUSTED`; only with an id was that job written
--- @error   the id key does not end in `:id`
--- @cost    O(log N) per delayed or prioritized job, else O(1) per job

local bulk = require("bulk")

return bulk.add(queue, jobs, skip_events)
