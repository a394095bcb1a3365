--- Retry failed jobs of a graph: they become ready, or wait for others that are retried, too.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   ratelimited          zset         groups that wait for their limits
--- @arg   now_ms               int          epoch ms
--- @arg   held                 flag         nothing starts before `oq1_releaseGraph` names it
--- @arg   news_count           int #news    how many follow
--- @arg   job_count            int #job_ids how many follow
--- @each    news Revived: a job of another queue that runs again, and its dependent here
--- @arg   dependent            text         the job that waits
--- @arg   member               text         the other's name among what it waits for
--- @end     news
--- @arg*  job_ids              text         jobs; one that has not failed is passed over
--- @returns array 1: those that failed and have not now; 2: queue, dependent, member per job of another queue that waits for one of these, to be told there as `news`; 3: queue, dependent, member, outcome per job to be told through `oq1_propagate`; 4: jobs whose dependents remain to be told through `oq1_propagate`
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per job, O(1) per edge to or from it: about 30 us and 10 us, so 100 take some 3 ms

local graph_retry = require("graph_retry")
local propagation = require("propagation")

-- To retry jobs of several calls or queues, all calls hold them, in any order; then the other queues are notified; then
-- all are released. So none starts, or fails again, before its dependencies are back in their former states.

local outcomes = propagation.new(queue, now_ms, 100, true)
local revived, elsewhere = graph_retry.all(outcomes, job_ids, news, held)
local _, untold, remaining = unpack(propagation.finish(outcomes))
return { revived, elsewhere, untold, remaining }
