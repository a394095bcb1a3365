--- What follows a failed attempt: another one, or the end.

local active = require("active")
local events = require("events")
local failure = require("failure")
local numbers = require("numbers")
local placement = require("placement")
local record = require("record")
local release = require("release")
local retention = require("retention")
local stream = require("stream")

local retry = {}

local SUBSCRIPTION_TTL_S = 86400
local PAGE = 1000

--- Count the attempt; returns how many there were, in a broadcast of this consumer group.
local function count(queue, attempt)
  local key = queue .. "job:" .. attempt.job_id
  if not attempt.broadcast then
    return numbers.count(key, "attemptsMade", 1)
  end
  key = key .. ":sub:" .. attempt.group
  local attempts = numbers.count(key, "a", 1)
  redis.call("EXPIRE", key, SUBSCRIPTION_TTL_S)
  return attempts
end

--- Schedule the next attempt.
local function schedule(queue, attempt, job, attempts)
  local job_id, now, reason = attempt.job_id, attempt.now_ms, attempt.failed_reason
  local key = queue .. "job:" .. job_id
  local opts = redis.call("HGET", key, "opts")
  if opts and opts:find('"fallbacks"', 1, true) then
    numbers.count(key, "fallbackIndex", 1)
  end
  local member = attempt.broadcast and job_id .. "||" .. attempt.group or job_id
  placement.later(queue, member, job, now + attempt.backoff_ms)
  redis.call("HSET", key, "state", "delayed", "failedReason", reason, "processedOn", now)
  active.pause_slot(queue, job, now)
  events.emit(
    queue, "retrying", job_id,
    "failedReason", reason, "attemptsMade", attempts, "delay", attempt.backoff_ms
  )
end

--- Fail the job for good.
function retry.give_up(queue, attempt, job)
  local job_id, now, reason = attempt.job_id, attempt.now_ms, attempt.failed_reason
  failure.record(queue, job_id, reason, now, "processedOn", now)
  release.forfeit(queue, job, now)
  failure.announce(queue, job_id, reason, now, job.processedOn)
  retention.apply(queue, "failed", { job_id }, now, attempt)
end

--- Count a failed attempt; returns whether another is scheduled. After the last, give up.
function retry.again(queue, attempt, job)
  local attempts = count(queue, attempt)
  if attempt.max_attempts > 0 and attempts < attempt.max_attempts then
    schedule(queue, attempt, job, attempts)
    return true
  end
  return false
end

--- Schedule a job that is off the failed ones, with all its attempts.
function retry.afresh(queue, job_id, job, now)
  if job.revoked == "1" then
    stream.disown_left(queue, job_id)
  end
  placement.later(queue, job_id, job, now)
  redis.call(
    "HSET", queue .. "job:" .. job_id,
    "state", "delayed", "attemptsMade", 0, "failedReason", "", "finishedOn", ""
  )
  redis.call("HDEL", queue .. "job:" .. job_id, "failureKind", "traceback")
end

--- Schedule up to `most` failed jobs again, oldest first, or all when it is 0; returns how many.
function retry.failed(queue, most, now)
  local retried = 0
  while most <= 0 or retried < most do
    local wanted = most > 0 and math.min(most - retried, PAGE) or PAGE
    local popped = redis.call("ZPOPMIN", queue .. "failed", wanted)
    if not popped[1] then
      break
    end
    for index = 1, #popped, 2 do
      local job_id = popped[index]
      local job = record.load(queue, job_id)
      if job then
        retry.afresh(queue, job_id, job, now)
        retried = retried + 1
      end
    end
  end
  return retried
end

return retry
