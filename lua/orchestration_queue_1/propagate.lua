--- Notify dependents of the outcomes of ended jobs, and run or end each as its trigger rule says.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   ratelimited          zset         groups that wait for their limits
--- @arg   now_ms               int          epoch ms
--- @arg   limit                int          at least 1; how many jobs that wait to change, those named by `news` not counted
--- @arg   news_count           int #news    how many follow
--- @arg   job_count            int #job_ids how many follow
--- @each    news ForeignOutcome: an ended job of another queue, and its dependent here
--- @arg   dependent            text         the job that waits
--- @arg   member               text         the ended job's name among what it waits for
--- @arg   outcome              text         `success`, `failed`, `upstream_failed` or `skipped`
--- @end     news
--- @arg*  job_ids              text         jobs that ended; one that is gone, or has another attempt, is passed over
--- @returns array 1: job id, verdict per decided job, `run`, `upstream_failed` or `skipped`; 2: queue, dependent, member, outcome per job that waits in another queue, to be told there as `news`; 3: jobs to call again with until there are none
--- @error   the stream key does not end in `:stream`; or when the limit is 0, or an outcome none
--- @cost    O(1) per job that waits for an ended one; for one that some let down and others did not, once O(what it waits for)

local dependencies = require("dependencies")
local propagation = require("propagation")
local validate = require("validate")

-- The submitter writes a waiting job's rule to its field `triggerRule`; without it, the rule is `all_success`. For
-- `all_failed` and `one_failed` it also adds the member `prefix:{queue}:__rule__` to the job's dependencies: otherwise
-- completions, which every glide-mq client counts by itself, would start it once all have completed. While a member
-- `prefix:{queue}:__hold__` is among them, nothing is decided: the submitter completes it last, and calls this for the
-- jobs that have ended by then. A job with the rule `always` runs at its first notification, or is not made to wait.
--
-- Written are, on a job that waits, the fields `depdone:{member}` and `depsCompleted` of completions, `depend:{member}`,
-- `depsFailed` and `depsSkipped` of others; and where it must not run, it fails with `outcome` beside its
-- `failedReason`. Told again, in any order with glidemq_completeChild, nothing is counted or decided twice.

validate.check_limit("propagate", limit)
for _, told in ipairs(news) do
  if not dependencies.is_outcome(told.outcome) then
    validate.refuse("propagate", "'" .. told.outcome .. "' is no outcome")
  end
end
local outcomes = propagation.new(queue, now_ms, limit, true)
for _, told in ipairs(news) do
  propagation.news(outcomes, told)
end
for _, job_id in ipairs(job_ids) do
  propagation.ended(outcomes, job_id)
end
return propagation.finish(outcomes)
