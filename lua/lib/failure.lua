--- How a job fails for good without a worker's word: the record, the event, the count.

local events = require("events")
local metrics = require("metrics")
local numbers = require("numbers")

local failure = {}

local heard

--- Have `visit(queue, job_id)` called for each job that fails from now on, before anything about it is removed; nil ends
--- that.
function failure.watch(visit)
  heard = visit
end

--- Add the job to the failed ones; the arguments after `now` are further fields and values of its record.
function failure.record(queue, job_id, reason, now, ...)
  redis.call("ZADD", queue .. "failed", now, job_id)
  redis.call(
    "HSET", queue .. "job:" .. job_id,
    "state", "failed", "failedReason", reason, "finishedOn", now, ...
  )
  if heard then
    heard(queue, job_id)
  end
end

--- Emit the event of a failure, and count it.
function failure.announce(queue, job_id, reason, now, processed_on, skip_events)
  if not skip_events then
    events.emit(queue, "failed", job_id, "failedReason", reason)
  end
  metrics.record(queue, "failed", now, processed_on)
end

--- Fail a job whose time to live is over.
function failure.expire(queue, job_id, now, processed_on)
  failure.record(queue, job_id, "expired", now, "failureKind", "expired")
  events.emit(queue, "expired", job_id)
  metrics.record(queue, "failed", now, processed_on)
end

function failure.has_expired(job, now)
  local expire_at = job.expireAt and numbers.finite(job.expireAt) or 0
  return expire_at > 0 and now > expire_at
end

return failure
