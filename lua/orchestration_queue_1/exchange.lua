--- Serve one exchange of a worker: settle jobs that ended, return or start delivered ones, take more.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   completed            zset         completed jobs by time
--- @key   failed               zset         failed jobs by time
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @key   metrics_completed    hash         completions per minute
--- @key   metrics_failed       hash         failures per minute
--- @key   priority             list         promoted prioritized jobs
--- @key   lifo                 list         LIFO jobs
--- @key   list_active          string       how many active jobs came from a list
--- @key   ratelimited          zset         groups that wait for their limits
--- @key   meta                 hash         settings of the queue
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group
--- @arg   consumer             text         who takes jobs
--- @arg   want                 int          jobs to start beyond the delivered ones; delayed and prioritized ones that are due too
--- @arg   honor_pause         flag         start nothing while the queue is paused; deliveries go back
--- @arg   cluster              flag         keys of other queues may be on other servers: notify their jobs by notices
--- @arg   dead_letter          text         queue to which a letter goes about each job that fails for good; empty for none
--- @arg   skip_events          flag         emit no `completed` event, nor a `failed` one of a job that costs too much
--- @arg   skip_metrics         flag         count no completions
--- @arg   settlement_count     int #settlements how many follow
--- @arg   hand_back_count      int #hand_backs how many follow
--- @arg   delivery_count       int #deliveries how many follow
--- @each    settlements Settled: an attempt that ended
--- @arg   kind                 text         `c` completed, `f` failed, `d` delayed, `w` waits for its children, `s` suspended, `n` suspended, and runs again once its time is over, `g` its group is held back
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   stalled_count        int          its `stalledCount` at that time; 0 without one
--- @arg   payload              text         `c` its result, as the serializer wrote it; `f`, `s` or `n` why; `d` its new payload, empty keeps it; `g` where it goes: `front` or `back` of its group, or `fail`
--- @arg   wait_ms              int          `f` how long before the retry; `d` epoch ms until which it waits, never before now; `s` or `n` how long at most, 0 forever; `g` how long the group is held back
--- @arg   max_attempts         int          `f` attempts allowed; 0 and 1 both mean no retry
--- @arg   extend               flag         `g` a later end already set stays
--- @arg   remove_mode          text         retention: `true`, `count`, `age_count`, or `0` to keep all
--- @arg   remove_count         int          jobs with this outcome to keep
--- @arg   remove_age_s         int          seconds to keep them
--- @end     settlements
--- @each    hand_backs HandBack: a delivered job to return to the end of the stream, unstarted
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry
--- @end     hand_backs
--- @each    deliveries Delivered: a delivered job to start
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry
--- @end     deliveries
--- @returns array 1: a letter per settlement, `c` completed, `r` to be retried, `f` failed, `d` delayed, `w` waits for its children, `a` ready again, all its children having completed, `s` suspended, `g` parked with its group, `l` lease lost and nothing changed; 2: job id, entry id (empty from a list), [field, value, ...] per started job; 3: queue, dependent, member, outcome per job that waits for one that ended, to be told there through `oq1_propagate`; 4: why no more jobs were taken: `enough` (there may be more), `empty`, `full` (global concurrency), `paused`, or empty text when no more were wanted, though `enough` where jobs wait in shares; 5: the dead letters that this call could not add, `[queue, id, name, data]` in JSON each, which the caller adds and then takes out of the sorted set `outbox`; 6: failed jobs whose dependents remain to be told through `oq1_propagate`
--- @error   the stream key does not end in `:stream`; or when a kind, an entry id, a retention mode or a job's destination is unknown
--- @cost    O(log N) per job, and O(1) per removed, notified or skipped job; it inspects at most 3 * want + 10 jobs, and changes at most 100 that wait for jobs that failed

local dispatch = require("dispatch")
local exchange = require("exchange")
local outcomes = require("outcomes")
local propagation = require("propagation")
local validate = require("validate")

-- A dead letter is a job like those of glidemq_addJob, with the name of the one that failed, and about it this data:
-- `{"originalQueue","originalJobId","data","failedReason","attemptsMade"}`, attempts without the last. It is written
-- with the failure or not at all. In a cluster the other queue may be on another server, and the caller has to add the
-- letter; under its id, which is the same for each letter about one run, it may do so twice. Until then this queue keeps
-- it in `outbox`, by time: if the caller dies, or this reply is lost, oq1_reclaim returns it again.
--
-- Only settled failures make dead letters: revoked and expired jobs need none, and this call does not see jobs that cost
-- more than their bucket holds, or whose workers were lost (see oq1_reclaim).

-- The dependents of a job that fails for good, for any reason, are decided in the same call, before retention can remove
-- it. Dependents of a completed job are notified as by every client, and their rules are applied.

local room = 100

validate.check(settlements, hand_backs, deliveries, dead_letter)
local self = exchange.new(queue, now_ms, {
  outcomes = propagation.new(queue, now_ms, room, cluster),
  group = group,
  consumer = consumer,
  cluster = cluster,
  dead_letter = dead_letter,
  skip_events = skip_events,
  skip_metrics = skip_metrics,
})
local verdicts = outcomes.settle(self, settlements)
outcomes.hand_back(self, hand_backs, 1)
exchange.flush(self)
propagation.run(self.outcomes)
local stopped = ""
if want > 0 or deliveries[1] then
  stopped = dispatch.serve(self, deliveries, want, honor_pause)
  exchange.flush(self)
end
local _, elsewhere, remaining = unpack(propagation.finish(self.outcomes))
return { verdicts, self.started, elsewhere, stopped, self.letters, remaining }
