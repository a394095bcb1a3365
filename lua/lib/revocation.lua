--- The one way in which a job is cancelled.

local events = require("events")
local guarded = require("guarded")
local record = require("record")
local release = require("release")
local stream = require("stream")
local withdrawal = require("withdrawal")

local revocation = {}

local waits = { waiting = true, delayed = true, prioritized = true, ["group-waiting"] = true }

--- Fail a job that has not started, else flag it; returns the reply of glidemq_revoke.
function revocation.revoke(queue, job_id, now_ms, group)
  local job = record.load(queue, job_id)
  if not job then
    return "not_found"
  end
  redis.call("HSET", queue .. "job:" .. job_id, "revoked", 1)
  if not waits[job.state] then
    events.emit(queue, "revoked", job_id)
    return "flagged"
  end
  if job.state == "group-waiting" then
    guarded.call("ZREM", queue .. "groupq:" .. job.groupKey, job_id)
  else
    local is_elsewhere = redis.call("ZREM", queue .. "scheduled", job_id) == 1
      or withdrawal.withdraw(queue, job_id, job)
    if not is_elsewhere and not stream.remove(queue, group, job_id, job) then
      stream.disown(queue, job_id)
    end
  end
  release.revoke(queue, job_id, job, now_ms)
  return "revoked"
end

return revocation
