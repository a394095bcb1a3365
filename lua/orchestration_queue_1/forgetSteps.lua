--- Remove a stored step of a job that is not running, so that its next attempt runs it again.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @arg   job_id               text         the job
--- @arg   name                 text         the step
--- @arg   following            flag         also the steps that were stored after it
--- @returns int how many were removed; -1 when there is no such job, -2 while it runs or moves to another queue
--- @error   the stream key does not end in `:stream`
--- @cost    O(N) for N steps of the job

local steps = require("steps")

local job = redis.call("HMGET", queue .. "job:" .. job_id, "state", "movingTo", "movedBy")
if not job[1] then
  return -1
elseif job[1] == "active" or job[2] or job[3] then
  return -2
end
return steps.forget(queue, job_id, name, following)
