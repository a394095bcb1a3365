--- Add children to a running job, in its queue, for which it can wait; only for the holder of its lease.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   ratelimited          zset         groups that wait for their limits
--- @record  claim the arguments that follow are its fields
--- @arg   job_id               text         the running job
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   stalled_count        int          its `stalledCount` at that time; 0 without one
--- @end     claim
--- @arg   now_ms               int          epoch ms
--- @arg   until_ended          flag         it waits until all have ended, however that was; else for their success
--- @arg   job_count            int #jobs    how many follow
--- @each    jobs NewJob: a child, with a custom id and without a parent
--- @like    addJob.job
--- @end     jobs
--- @returns texts per job its id; or `duplicate` when it was there, and is a child from now on, too; or `ERR:COST_EXCEEDS_CAPACITY`, and then it was not added; or the one text `lost` when the running job is gone, ended, revoked or leased to another worker, and nothing was written
--- @error   the id key does not end in `:id`; or when a job has no custom id, a parent, or the id of the running job
--- @cost    O(log N) per delayed or prioritized job, else O(1) per job, about 20 us

local children = require("children")
local lease = require("lease")

children.check(claim, jobs)
local job, same = lease.look(queue, claim, lease.RENEWAL)
if not same or job.state ~= "active" or job.revoked then
  return "lost"
end
return children.add(queue, claim, jobs, now_ms, until_ended)
