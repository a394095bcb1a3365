--- Record details of failed attempts, as `oq1_noteFailures` does, and add them and completed attempts of tracked jobs to
--- the histories of their jobs. Sent before the exchange that settles them.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @arg   worker               text         the worker's name
--- @arg   host                 text         its machine
--- @arg   now_ms               int          epoch ms
--- @arg   attempt_count        int #attempts how many follow
--- @each    attempts AttemptNote: an attempt that ended
--- @arg   job_id               text         the job
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   stalled_count        int          its `stalledCount` at that time; 0 without one
--- @arg   kind                 text         what failed: a word of the client, stored as `failureKind`; empty for an attempt that completed
--- @arg   error                text         the error's qualified class; empty without one
--- @arg   reason               text         the error's message
--- @arg   traceback            text         where, stored as `traceback`; empty when nothing is known
--- @end     attempts
--- @returns int how many were noted: an attempt whose lease is lost is not
--- @error   the stream key does not end in `:stream`
--- @cost    O(1) per attempt: the last 20 entries of a job are kept, in at most 32 KiB

local history = require("history")
local lease = require("lease")
local numbers = require("numbers")

local FIELDS = { "state", "processedOn", "stalledCount", "attemptsMade" }

local noted = 0
for _, attempt in ipairs(attempts) do
  local job, same = lease.look(queue, attempt, FIELDS)
  if same and job.state == "active" and attempt.kind == "" then
    history.append(queue, attempt.job_id, {
      event = "completed",
      worker = worker,
      host = host,
      attempt = (numbers.whole(job.attemptsMade) or 0) + 1,
      started = attempt.taken_ms,
      ended = now_ms,
    })
    noted = noted + 1
  elseif same and job.state == "active" then
    redis.call(
      "HSET", queue .. "job:" .. attempt.job_id,
      "failureKind", attempt.kind, "traceback", attempt.traceback,
      -- Other clients count later attempts and leave these fields as they are: readers see by this that they are old.
      "failureAttempt", (numbers.whole(job.attemptsMade) or 0) + 1
    )
    history.append(queue, attempt.job_id, {
      event = "failed",
      worker = worker,
      host = host,
      ended = now_ms,
      kind = attempt.kind,
      error = attempt.error,
      reason = attempt.reason,
      traceback = attempt.traceback,
    })
    noted = noted + 1
  end
end
return noted
