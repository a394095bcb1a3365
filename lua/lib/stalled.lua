--- What happens to an active job whose lease ran out.

local events = require("events")
local failure = require("failure")
local record = require("record")
local numbers = require("numbers")
local release = require("release")

local stalled = { REASON = "job stalled more than maxStalledCount" }

local SHORTEST_MS, LONGEST_MS = 1000, 86400000

--- The lease the job's own options name; nil when they name none.
local function own_lease(queue, job_id)
  local opts = redis.call("HGET", queue .. "job:" .. job_id, "opts")
  if not opts or not opts:find('"lockDuration"', 1, true) then
    return nil
  end
  local readable, decoded = pcall(cjson.decode, opts)
  local lease = readable and type(decoded) == "table" and tonumber(decoded.lockDuration)
  return lease and lease >= SHORTEST_MS and lease <= LONGEST_MS and lease or nil
end

--- Whether a job without its own lease has been idle for as long as the sweep allows.
function stalled.has_passed(since, sweep)
  return sweep.now_ms - since >= (sweep.lock_duration_ms > 0 and sweep.lock_duration_ms or sweep.min_idle_ms)
end

--- Whether the job, whose lease was renewed before, has not been renewed for the allowed time.
function stalled.is_silent(queue, job_id, job, sweep)
  local last, lease = numbers.finite(job.lastActive) or 0, own_lease(queue, job_id)
  if lease then
    return sweep.now_ms - last >= lease
  end
  return stalled.has_passed(last, sweep)
end

--- Count one stall. Returns true when it was one too many and the job has failed.
function stalled.strike(queue, job_id, job, most, now)
  local key = queue .. "job:" .. job_id
  if numbers.count(key, "stalledCount", 1) <= most then
    events.emit(queue, "stalled", job_id)
    return false
  end
  failure.record(queue, job_id, stalled.REASON, now, "failureKind", "stalled")
  release.forfeit(queue, job, now)
  failure.announce(queue, job_id, stalled.REASON, now, job.processedOn)
  return true
end

--- The job runs again from the beginning. One of a group without turns takes a new slot then, so it gives its own back.
function stalled.reset(queue, job_id, job, now)
  local key = queue .. "job:" .. job_id
  redis.call("HSET", key, "state", "waiting")
  redis.call("HDEL", key, "processedOn", "lastActive")
  if job.state == "active" and record.sequence(job) <= 0 then
    release.slot(queue, job.groupKey, now)
  end
end

return stalled
