--- Deduplication: one job represents all of the same deduplication id.

local events = require("events")
local failure = require("failure")
local overdue = require("overdue")
local purge = require("purge")
local record = require("record")
local release = require("release")

local dedup = {}

--- The job that was last created under the id: its `id`, `created_ms`, and `job` unless that is gone. nil for none.
function dedup.standing(queue, dedup_key, dedup_id)
  local stored = redis.call("HGET", dedup_key, dedup_id)
  local job_id, created = (stored or ""):match("^([^:]*):(.*)$")
  if not job_id then
    return nil
  end
  return { id = job_id, created_ms = tonumber(created) or 0, job = record.load(queue, job_id) }
end

local function unfinished(standing, now)
  local job = standing.job
  return job and job.state and not record.has_ended(job) and not overdue.is(job, now)
end

--- Whether the job expired, and never ran.
local function has_missed_its_time(job, now)
  return job ~= nil and not job.processedOn and job.state ~= "completed" and failure.has_expired(job, now)
end

--- Whether a new job takes the place of the standing one, which has not become ready yet.
function dedup.is_replaced(standing, mode)
  local state = standing and standing.job and standing.job.state
  return mode == "debounce" and (state == "delayed" or state == "prioritized")
end

--- Whether the standing job makes a new one superfluous.
function dedup.stands_in(standing, mode, now, ttl_ms)
  if not standing then
    return false
  elseif mode == "throttle" then
    return ttl_ms > 0 and now - standing.created_ms < ttl_ms and not has_missed_its_time(standing.job, now)
  elseif mode == "simple" or mode == "debounce" then
    return unfinished(standing, now) and not dedup.is_replaced(standing, mode)
  end
  return false
end

--- Remove the standing job for the one that replaces it.
function dedup.remove(queue, standing, now, skip_events)
  redis.call("ZREM", queue .. "scheduled", standing.id)
  release.forfeit(queue, standing.job, now)
  purge.jobs(queue, { standing.id })
  if not skip_events then
    events.emit(queue, "removed", standing.id)
  end
end

return dedup
