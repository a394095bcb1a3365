--- Waits for a signal after which the job runs again in any case: with the signal, or once the time is over. Jobs of other
--- suspensions fail then, by their score in `suspended`. The scores of these are beyond all times that the wire knows, so
--- that no other library fails them.

local deferral = require("deferral")
local events = require("events")
local guarded = require("guarded")
local record = require("record")
local stream = require("stream")

local waits = {}

local BEYOND = 1e13
local MOST_JOBS = 100

local function score(time)
  return string.format("%.0f", BEYOND + time)
end

--- Let a job wait for a signal, at most `timeout` ms; 0 is forever.
function waits.begin(queue, job_id, job, now, reason, timeout)
  deferral.for_signal(queue, job_id, job, now, reason, 0)
  if timeout > 0 then
    redis.call("HSET", queue .. "job:" .. job_id, "suspendTimeout", timeout)
    redis.call("ZADD", queue .. "suspended", score(now + timeout), job_id)
  else
    redis.call("HDEL", queue .. "job:" .. job_id, "suspendTimeout")
  end
end

--- Make jobs ready whose time is over; returns how many, at most 100.
function waits.resume(queue, now)
  local key, resumed = queue .. "suspended", 0
  for _, job_id in ipairs(guarded.call("ZRANGE", key, score(0), score(now), "BYSCORE", "LIMIT", 0, MOST_JOBS)) do
    local job = record.load(queue, job_id)
    redis.call("ZREM", key, job_id)
    if job and job.state == "suspended" then
      redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting")
      stream.push(queue, job_id, job.name)
      events.emit(queue, "resumed", job_id)
      resumed = resumed + 1
    end
  end
  return resumed
end

--- The earlier of a time, -1 for none, and the next at which a wait is over.
function waits.next_due(queue, due)
  local found = guarded.call("ZRANGE", queue .. "suspended", score(0), "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
  local at = found[2] and tonumber(found[2]) - BEYOND
  return at and (due < 0 or at < due) and at or due
end

return waits
