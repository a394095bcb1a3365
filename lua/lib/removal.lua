--- Removes one job from wherever it is.

local guarded = require("guarded")
local lists = require("lists")
local purge = require("purge")
local record = require("record")
local release = require("release")
local withdrawal = require("withdrawal")

local removal = {}

--- Remove a job and all its keys; returns its record, or nil. The entry of a ready job goes, too: with one that was left, a
--- new job of the same id would run twice. An empty `group` leaves it to the caller.
function removal.remove(queue, job_id, group)
  local job = record.load(queue, job_id)
  if not job then
    return nil
  end
  if job.state == "active" and lists.holds(job) then
    lists.leave(queue, job_id)
  elseif job.state == "waiting" then
    withdrawal.remove_ready(queue, group, job_id, job)
  elseif job.state == "group-waiting" then
    guarded.call("ZREM", queue .. "groupq:" .. (job.groupKey or ""), job_id)
  end
  for _, set in ipairs({ "scheduled", "completed", "failed", "suspended" }) do
    redis.call("ZREM", queue .. set, job_id)
  end
  release.forfeit(queue, job, 0)
  purge.jobs(queue, { job_id })
  return job
end

return removal
