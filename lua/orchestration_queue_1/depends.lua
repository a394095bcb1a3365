--- Change which jobs of its queue a job waits for, while it waits and has not run.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   ratelimited          zset         groups that wait for their limits
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   on_count             int #on      how many follow
--- @arg   off_count            int #off     how many follow
--- @each    on DependsOn: a job that it waits for from now on
--- @arg   job_id               text         the job
--- @end     on
--- @each    off DependsOff: a job that it waits for no more
--- @arg   job_id               text         the job
--- @end     off
--- @returns array 1: `ok`; `not_found`; `not_waiting` when it does not wait for others or has run; `missing` when a job to wait for does not exist, `circle` when that waits for it in turn, `too_deep` when more than 1,000 jobs would have to be read to know: and then nothing was changed; 2: the job of `on` that this is about, else empty; 3: queue, dependent, member, outcome per job elsewhere to be told through `oq1_propagate`; 4: ended jobs whose dependents remain to be told through it
--- @error   the id key does not end in `:id`
--- @cost    O(1) per job, and per job that those of `on` wait for, at most 1,000

local edges = require("edges")
local validate = require("validate")

if #on + #off > 100 then
  validate.refuse("depends", "at most 100 jobs a call, got " .. (#on + #off))
end
return edges.change(queue, job_id, on, off, now_ms)
