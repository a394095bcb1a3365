--- Holds a group back for a while at run time.

local events = require("events")
local failure = require("failure")
local groups = require("groups")
local guarded = require("guarded")
local record = require("record")

local group_limit = { REASON = "group rate limited" }

--- The rank of a held job among the parked: before all others in its sequence, or behind them.
local function score_of(queue, name, job_id, job, position)
  local seq = record.sequence(job)
  if position ~= "back" then
    return seq
  end
  local last = guarded.call("ZRANGE", groups.parked_key(queue, name), 0, 0, "REV", "WITHSCORES")
  if last[2] then
    return tonumber(last[2]) + 1
  end
  return seq > 0 and seq or tonumber(job_id) or 0
end

--- Park the active job that reached the limit at the `front` or the `back` of its group, or fail it (`fail`).
--- The caller takes it off its worker.
function group_limit.put_down(queue, job_id, job, now, fate)
  local name = job.groupKey
  groups.free_slot(queue, name, job_id, groups.load(queue, name).active)
  if fate == "fail" then
    failure.record(queue, job_id, group_limit.REASON, now, "processedOn", job.processedOn or now)
    failure.announce(queue, job_id, group_limit.REASON, now, job.processedOn)
  else
    groups.park(queue, name, job_id, score_of(queue, name, job_id, job, fate))
  end
end

--- Hold a group back; returns until when. `extend` says whether an end already set stays when it is later.
function group_limit.group(queue, name, job_id, duration, now, extend)
  local resume_at = now + duration
  if extend == "max" then
    local standing = tonumber(redis.call("ZSCORE", queue .. "ratelimited", name)) or 0
    resume_at = math.max(resume_at, standing)
  end
  groups.hold_until(queue, name, resume_at)
  groups.note_hold(queue, name, resume_at)
  events.emit(
    queue, "group-rate-limited", job_id,
    "groupKey", name, "duration", duration, "resumeAt", resume_at
  )
  return resume_at
end

return group_limit
