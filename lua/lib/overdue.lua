--- Jobs whose time to live is over, but which no worker has read since. They will not run, so they must not keep others
--- from being added.

local failure = require("failure")
local guarded = require("guarded")
local purge = require("purge")
local record = require("record")
local release = require("release")
local withdrawal = require("withdrawal")

local overdue = {}

local GROUP = "workers"

--- Whether a worker that reads the job will find it expired.
function overdue.is(job, now)
  return job.state ~= "active" and not record.has_ended(job) and failure.has_expired(job, now)
end

--- Ways to take a job that has never run from where it waits; each returns whether it was there.
local take = {}

function take.waiting(queue, job_id, job)
  return withdrawal.remove_ready(queue, GROUP, job_id, job)
end

function take.delayed(queue, job_id)
  return redis.call("ZREM", queue .. "scheduled", job_id) == 1
end

take.prioritized = take.delayed

take["group-waiting"] = function(queue, job_id, job)
  return guarded.call("ZREM", queue .. "groupq:" .. (job.groupKey or ""), job_id) == 1
end

--- Whether a job has expired before it ever ran, and nothing waits for its outcome: its id may go to a new job.
function overdue.yields(queue, job_id, now)
  local job = record.load(queue, job_id)
  return job ~= nil
    and take[job.state] ~= nil
    and not job.processedOn
    and failure.has_expired(job, now)
    and redis.call("HEXISTS", queue .. "job:" .. job_id, "parentId") == 0
    and redis.call("EXISTS", queue .. "parents:" .. job_id) == 0
end

--- Expire and remove a job that yields. Returns false and changes nothing if its entry on a long stream was not found: it
--- would start the new job a second time.
function overdue.remove(queue, job_id, now)
  local job = record.load(queue, job_id)
  if not take[job.state](queue, job_id, job) then
    return false
  end
  failure.expire(queue, job_id, now)
  release.forfeit(queue, job, now)
  redis.call("ZREM", queue .. "failed", job_id)
  purge.jobs(queue, { job_id })
  return true
end

return overdue
