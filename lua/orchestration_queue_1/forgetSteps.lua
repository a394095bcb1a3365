--- Remove stored steps of a job that is not running, with their signals, so that its next attempt runs them again.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @arg   job_id               text         the job
--- @arg   name_count           int #names   how many follow
--- @arg*  names                text         the steps, 1 to 500
--- @returns int how many were removed; -1 when there is no such job, -2 while it runs or moves to another queue
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for no step, or more than 500
--- @cost    O(1) per step, and per signal if one of them received one

local steps = require("steps")
local validate = require("validate")

local MOST = 500

if #names < 1 or #names > MOST then
  validate.refuse("forgetSteps", "1 to " .. MOST .. " steps are forgotten in a call")
end
local job = redis.call("HMGET", queue .. "job:" .. job_id, "state", "movingTo", "movedBy")
if not job[1] then
  return -1
elseif job[1] == "active" or job[2] or job[3] then
  return -2
end
return steps.forget(queue, job_id, names)
