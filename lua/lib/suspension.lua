--- Ends suspensions whose deadline has passed.

local failure = require("failure")
local record = require("record")
local release = require("release")

local suspension = {}

local MOST_JOBS, REASON = 100, "Suspend timeout exceeded"

--- Fail suspended jobs whose timeout has expired; returns how many, at most 100.
function suspension.sweep(queue, now)
  local failed, key = 0, queue .. "suspended"
  local due = redis.call("ZRANGE", key, 0, string.format("%.0f", now), "BYSCORE", "LIMIT", 0, MOST_JOBS)
  for _, job_id in ipairs(due) do
    local job = record.load(queue, job_id)
    redis.call("ZREM", key, job_id)
    if job and job.state == "suspended" then
      failure.record(queue, job_id, REASON, now, "processedOn", now)
      release.forfeit(queue, job, now)
      failure.announce(queue, job_id, REASON, now, job.processedOn)
      failed = failed + 1
    end
  end
  return failed
end

return suspension
