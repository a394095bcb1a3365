--- Release held jobs of a graph: start those without other dependencies, and decide the others by their rules.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   ratelimited          zset         groups that wait for their limits
--- @arg   now_ms               int          epoch ms
--- @arg   limit                int          at least 1; how many jobs that wait may change beyond those named
--- @arg   job_count            int #job_ids how many follow
--- @arg*  job_ids              text         held jobs; one that is gone, or is not held, is passed over
--- @returns array 1: job id, verdict per decided job, `run`, `upstream_failed` or `skipped`; 2: queue, dependent, member, outcome per job that waits in another queue, to be told there through `oq1_propagate`; 3: jobs to call `oq1_propagate` with until there are none
--- @error   the stream key does not end in `:stream`; or when the limit is 0
--- @cost    O(log N) per job, about 15 us; and as of `oq1_propagate` where one must not run

local holding = require("holding")
local propagation = require("propagation")
local validate = require("validate")

validate.check_limit("releaseGraph", limit)
local outcomes = propagation.new(queue, now_ms, limit, true)
for _, job_id in ipairs(job_ids) do
  holding.release(outcomes, job_id)
end
return propagation.finish(outcomes)
