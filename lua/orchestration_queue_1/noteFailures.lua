--- Record details of failed attempts that their settlement does not carry. Sent before the exchange that settles them.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @arg   failure_count        int #failures how many follow
--- @each    failures FailureNote: an attempt that failed
--- @arg   job_id               text         the job
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   stalled_count        int          its `stalledCount` at that time; 0 without one
--- @arg   kind                 text         what failed: a word of the client, stored as `failureKind`
--- @arg   traceback            text         where, stored as `traceback`; empty when nothing is known
--- @end     failures
--- @returns int how many were noted: an attempt whose lease is lost is not
--- @error   the stream key does not end in `:stream`
--- @cost    O(1) per failure

local lease = require("lease")
local numbers = require("numbers")

local FIELDS = { "state", "processedOn", "stalledCount", "attemptsMade" }

local noted = 0
for _, failure in ipairs(failures) do
  local job, same = lease.look(queue, failure, FIELDS)
  if same and job.state == "active" then
    redis.call(
      "HSET", queue .. "job:" .. failure.job_id,
      "failureKind", failure.kind, "traceback", failure.traceback,
      -- Other clients count later attempts and leave these fields as they are: readers see by this that they are old.
      "failureAttempt", (numbers.whole(job.attemptsMade) or 0) + 1
    )
    noted = noted + 1
  end
end
return noted
