--- The one way in which a job becomes active.

local admission = require("admission")
local failure = require("failure")
local lists = require("lists")
local numbers = require("numbers")
local record = require("record")
local release = require("release")
local stream = require("stream")

local activation = {}

-- The fields that the activation itself writes, and those that decide about it.
local STAMPED = "stamped"
local DECISIVE = record.control()
DECISIVE.state, DECISIVE.processedOn, DECISIVE.lastActive = STAMPED, STAMPED, STAMPED
DECISIVE.strayEntry, DECISIVE.strayElement, DECISIVE.releasedFrom = true, true, true

--- Take a job that did not become active off the worker that fetched it. The caller keeps the list count.
local function put_down(queue, job_id, entry)
  if entry.id == "" then
    lists.forget(queue, job_id)
  else
    stream.settle(queue, entry.group, entry.id, entry.broadcast)
  end
end

--- Whether a list element or a stream entry was left behind when the job was taken from where it waited.
local function is_stray(queue, job_id, job, entry)
  if entry.id == "" then
    return job.strayElement and job.state ~= "waiting"
  end
  return job.strayEntry and stream.is_stray(queue, job_id, entry.id, job.strayEntry)
end

--- Drop what was left behind. A job that was started from a list meanwhile stays noted as such.
local function drop_stray(queue, job_id, job, entry)
  if entry.id ~= "" then
    put_down(queue, job_id, entry)
  elseif job.state == "active" and lists.holds(job) then
    lists.activated(queue, job_id, job.processedOn)
  else
    lists.forget(queue, job_id)
  end
end

--- What the flat record says about whether and how the job may start, as a table, with `stamp` written into the record
--- in the same pass.
local function read_and_stamp(flat, stamp)
  -- Of this size from the start: it would grow four times.
  local job = { state = nil, name = nil, priority = nil, timestamp = nil, processedOn = nil, lastActive = nil }
  for index = 1, #flat, 2 do
    local name = flat[index]
    local role = DECISIVE[name]
    if role then
      job[name] = flat[index + 1]
      if role == STAMPED then
        flat[index + 1] = name == "state" and "active" or stamp
      end
    end
  end
  return job
end

--- Add the stamped fields that the record did not have.
local function complete(flat, job, stamp)
  local size = #flat
  if not job.state then
    flat[size + 1], flat[size + 2], size = "state", "active", size + 2
  end
  if not job.processedOn then
    flat[size + 1], flat[size + 2], size = "processedOn", stamp, size + 2
  end
  if not job.lastActive then
    flat[size + 1], flat[size + 2] = "lastActive", stamp
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

--- Whether a job that is taken at `now` would get the lease of an attempt that it was taken from: all of these ended at
--- `released_from` or before, each a millisecond after the last. A clock that is further behind is another matter.
local function precedes(released_from, now)
  local ahead = (tonumber(released_from) or now - 1) - now
  return ahead >= 0 and ahead < 1000
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
  local stamp = numbers.text(now)
  local job = read_and_stamp(flat, stamp)
  if precedes(job.releasedFrom, now) then
    return activation.try(queue, job_id, entry, job.releasedFrom + 1, skip_events)
  end
  if entry.unfinished and record.has_ended(job) then
    return nil, ""
  elseif is_stray(queue, job_id, job, entry) then
    drop_stray(queue, job_id, job, entry)
    return nil, "EXPIRED" -- the wire's word for what is put down and needs no report
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
  redis.call("HSET", key, "state", "active", "processedOn", stamp, "lastActive", stamp, origin(job, entry, stamp))
  if entry.id == "" then
    lists.activated(queue, job_id, now)
  end
  return complete(flat, job, stamp)
end

return activation
