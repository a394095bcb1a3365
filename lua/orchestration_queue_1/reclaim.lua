--- Take over stalled jobs, which become ready, or fail if they stalled too often; and fail suspended
--- jobs whose timeout has expired. Dead letters that were not added are returned again.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   priority             list         promoted prioritized jobs
--- @key   lifo                 list         LIFO jobs
--- @key   list_active          string       how many active jobs came from a list
--- @key   ratelimited          zset         groups that wait for their limits
--- @key   suspended            zset         suspended jobs by deadline
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group
--- @arg   consumer             text         who looks
--- @arg   limit                int          at least 1; how many idle entries to inspect, and how many list jobs to take back
--- @arg   min_idle_ms          int          entries idle for less are left alone
--- @arg   max_stalled_count    int          stalls forgiven per job
--- @arg   lock_duration_ms     int          silence forgiven when the job names none; 0 means min_idle_ms
--- @arg   dead_letter          text         queue to which a letter goes about each job that fails; empty for none
--- @arg   cluster              flag         keys of other queues may be on other servers: leave letters, and jobs there that wait, to the caller
--- @returns array 1: how many jobs are ready again; 2: ids of those that failed, without expired ones; 3: 1 if there may be more, else 0; 4: the dead letters that this call could not add, and some of those kept for longer than `min_idle_ms`, as `oq1_exchange` returns them; 5: queue, dependent, member, outcome per job that waits for one that failed or expired, to be told there through `oq1_propagate`; 6: such jobs whose dependents remain to be told through `oq1_propagate`; 7: how many suspended jobs failed, at most 100
--- @error   the stream key does not end in `:stream`; or when the limit is 0, or the dead letter queue none
--- @cost    O(log N) per entry, at most `limit`; O(A) for A active list jobs; a scan of the keys when another library activated some

local dead_letters = require("dead_letters")
local guarded = require("guarded")
local history = require("history")
local numbers = require("numbers")
local propagation = require("propagation")
local reclaim = require("reclaim")
local stalled = require("stalled")
local suspension = require("suspension")
local tags = require("tags")
local validate = require("validate")
local wake = require("wake")

-- The effects are those of glidemq_reclaimStalled, _reclaimStalledListJobs and _sweepSuspended, and dead letters as of
-- oq1_exchange, so that a job that crashes every worker is kept there. Its reason begins with `crashed: `.

validate.check_limit("reclaim", limit)
validate.check_queue_name("reclaim", dead_letter)
local self = { queue = queue, now = now_ms, cluster = cluster, dead_letter = dead_letter, letters = {} }
local more_letters = dead_letters.overdue(self, now_ms - min_idle_ms)
local outcomes = propagation.new(queue, now_ms, 100, cluster)
local retried, failed = 0, {}
local sweep = {
  group = group,
  min_idle_ms = min_idle_ms,
  lock_duration_ms = lock_duration_ms,
  most_stalls = max_stalled_count,
  now_ms = now_ms,
  limit = limit,
  notify = function(job_id, job, has_failed, worker)
    history.append(queue, job_id, {
      event = "stalled",
      worker = worker,
      ended = now_ms,
      started = numbers.whole(job.processedOn),
      kind = "stalled",
      reason = has_failed and stalled.REASON or "its worker was lost",
    })
    if has_failed then
      failed[#failed + 1] = job_id
      dead_letters.send(self, job_id, job, "crashed: " .. stalled.REASON, 0)
    else
      retried = retried + 1
    end
  end,
}
local _, more_entries = reclaim.entries(queue, consumer, sweep)
local _, more_list_jobs = reclaim.list_jobs(queue, sweep)
local timed_out = suspension.sweep(queue, now_ms)
tags.sweep_any(queue)
for _, index in ipairs({ "schedulers:due", "flows", "flows:due", "flows:ended", "moving" }) do
  guarded.call("ZCARD", queue .. index) -- clients write there without a function, and would be refused
end
local _, elsewhere, remaining = unpack(propagation.finish(outcomes))
if retried > 0 then
  wake.for_lists(queue)
end
local more = (more_entries or more_list_jobs or more_letters) and 1 or 0
return { retried, failed, more, self.letters, elsewhere, remaining, timed_out }
