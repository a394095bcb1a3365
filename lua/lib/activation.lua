--- The one way in which a job becomes active.

local admission = require("admission")
local failure = require("failure")
local lists = require("lists")
local record = require("record")
local release = require("release")
local stream = require("stream")

local activation = {}

local STAMPED = { "state", "processedOn", "lastActive" }

--- Take a job that did not become active off the worker that fetched it. The caller keeps the list count.
local function put_down(queue, job_id, entry)
  if entry.id == "" then
    lists.forget(queue, job_id)
  else
    stream.settle(queue, entry.group, entry.id, entry.broadcast)
  end
end

--- The flat record with its new values: each field once.
local function stamped(flat, job, stamp)
  for index = 1, #flat, 2 do
    local name = flat[index]
    if name == "state" then
      flat[index + 1] = "active"
    elseif name == "processedOn" or name == "lastActive" then
      flat[index + 1] = stamp
    end
  end
  local size = #flat
  for _, name in ipairs(STAMPED) do
    if not job[name] then
      flat[size + 1], flat[size + 2] = name, name == "state" and "active" or stamp
      size = size + 2
    end
  end
  return flat
end

--- Only where the job's options mislead about it is it noted whence an active job came. Who took it from a list is not
--- seen in any consumer group, and is noted where it is known.
local function origin(job, entry, stamp)
  local source = entry.id == "" and "list" or "stream"
  local implied = (job.lifo == "1" or record.priority(job) > 0) and "list" or "stream"
  local misleads = (job.takenFrom or implied) ~= source
  if source == "list" and entry.consumer then
    local taker = lists.taker(entry.consumer, stamp)
    if misleads then
      return "takenBy", taker, "takenFrom", source
    end
    return "takenBy", taker
  elseif misleads then
    return "takenFrom", source
  end
end

--- Activate one job. `entry` has `id` (empty from a list), `group` and `broadcast`, and may have `consumer`, who takes it;
--- with `unfinished` a job that has ended is as good as gone.
--- @return the flat record; or nil and why not: empty (no such job), `REVOKED`, `EXPIRED` or a verdict of admission
function activation.try(queue, job_id, entry, now, skip_events)
  local key = queue .. "job:" .. job_id
  local flat = redis.pcall("HGETALL", key)
  if flat.err or #flat == 0 then
    return nil, ""
  end
  local job = record.from_flat(flat)
  if entry.unfinished and record.has_ended(job) then
    return nil, ""
  elseif job.revoked == "1" then
    return nil, "REVOKED"
  end
  local verdict
  if failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
    verdict = "EXPIRED"
  elseif job.groupKey and job.groupKey ~= "" then
    verdict = admission.enter(queue, job_id, job, now, skip_events)
  end
  if verdict then
    put_down(queue, job_id, entry)
    return nil, verdict
  end
  local stamp = string.format("%.0f", now)
  redis.call("HSET", key, "state", "active", "processedOn", stamp, "lastActive", stamp, origin(job, entry, stamp))
  if entry.id == "" then
    lists.activated(queue, job_id, now)
  end
  return stamped(flat, job, stamp)
end

return activation
