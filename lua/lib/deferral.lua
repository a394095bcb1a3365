--- Defers an active job, which runs again later: at a time, when its children have completed, or when it is signaled.
--- The caller takes it off its worker.

local active = require("active")
local events = require("events")
local flows = require("flows")
local placement = require("placement")

local deferral = {}

local NO_DEADLINE = 9999999999999

--- Defer a job until a time, without counting an attempt. Unless empty, `new_data` replaces its payload.
function deferral.until_due(queue, job_id, job, due, now, new_data)
  local key, delay = queue .. "job:" .. job_id, math.max(due - now, 0)
  placement.later(queue, job_id, job, now + delay)
  redis.call("HSET", key, "state", "delayed", "delay", delay)
  if new_data ~= "" then
    redis.call("HSET", key, "data", new_data)
  end
  active.pause_slot(queue, job, now)
  events.emit(queue, "delay-changed", job_id, "delay", delay)
end

--- Let a job wait for its children; false when all have completed, and it is ready again.
function deferral.for_children(queue, job_id, job, now)
  active.pause_slot(queue, job, now)
  local children = redis.call("SCARD", queue .. "deps:" .. job_id)
  if children > 0 and (tonumber(job.depsCompleted) or 0) >= children then
    flows.resume(queue, job_id, job.name, job.share)
    return false
  end
  redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting-children")
  events.emit(queue, "waiting-children", job_id)
  return true
end

--- Suspend a job until it is signalled, at most `timeout` ms; 0 is forever.
function deferral.for_signal(queue, job_id, job, now, reason, timeout)
  local key = queue .. "job:" .. job_id
  redis.call("HSET", key, "state", "suspended", "suspendedAt", now)
  if reason ~= "" then
    redis.call("HSET", key, "suspendReason", reason)
  end
  if timeout > 0 then
    redis.call("HSET", key, "suspendTimeout", timeout)
  end
  redis.call("ZADD", queue .. "suspended", timeout > 0 and now + timeout or NO_DEADLINE, job_id)
  active.pause_slot(queue, job, now)
  events.emit(queue, "suspended", job_id)
end

return deferral
