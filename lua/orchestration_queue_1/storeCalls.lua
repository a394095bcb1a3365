--- Store which jobs steps of a running job call, once each, and make it wait for their end; only for the holder of its lease.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @record  claim the arguments that follow are its fields
--- @arg   job_id               text         the running job
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   stalled_count        int          its `stalledCount` at that time; 0 without one
--- @end     claim
--- @arg   attempt              int          the attempt that calls
--- @arg   now_ms               int          epoch ms
--- @arg   check_ms             int          epoch ms at which the flow reconciler should check that no notification was lost
--- @arg   call_count           int #calls   how many follow
--- @each    calls StepCall: a step that calls a job
--- @arg   name                 text         its name
--- @arg   member               text         the job, `prefix:{queue}:id`, which the caller adds next
--- @arg   replaces             int          the number of the step's earlier call, which this one replaces; 0 for none
--- @end     calls
--- @returns array per call an array, 1: the outcome that counts, as of `oq1_storeStep`, of kind `c` while the step waits; 2: if it was stored before, its result, or the job that it calls; or the text `lost` when the job is gone, ended or leased to another worker, or `full` when it would have more than 10,000 steps, and then nothing was written
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for more than 100 calls
--- @cost    O(1) per call, about 10 us

local lease = require("lease")
local steps = require("steps")
local validate = require("validate")

if #calls > 100 then
  validate.refuse("storeCalls", "at most 100 calls at once, got " .. #calls)
end
local job, same = lease.look(queue, claim, { "state", "processedOn", "stalledCount", "steps" })
if not same or job.state ~= "active" then
  return "lost"
end
for _, call in ipairs(calls) do
  call.kind, call.attempt, call.ended_ms, call.duration_ms, call.until_ms = "c", attempt, now_ms, 0, 0
  call.result = call.member
end
return steps.call(queue, claim.job_id, not job.steps, calls, check_ms)
