--- Finds the next job for a worker that has just completed one.

local activation = require("activation")
local events = require("events")
local lists = require("lists")
local record = require("record")
local release = require("release")
local shares = require("shares")
local stream = require("stream")

local fetch = {}

local MOST_POPS = 6
local MOST_ENTRIES = 3
-- The stack of a script holds some 8000 words.
local MOST_UNPACKED = 1000

local function activated(completed_id, job_id, entry_id, flat)
  if #flat <= MOST_UNPACKED then
    return { "NEXT_HASH", completed_id, job_id, entry_id, unpack(flat) }
  end
  local reply = { "NEXT_HASH", completed_id, job_id, entry_id }
  for index = 1, #flat do
    reply[index + 4] = flat[index]
  end
  return reply
end

--- A job cancelled before it reached the list has failed already; one retried since then fails now.
local function drop_revoked(queue, job_id, now)
  local job = record.load(queue, job_id)
  if job and job.state == "waiting" then
    release.revoke(queue, job_id, job, now)
  end
end

local function from_lists(queue, done)
  local entry = { id = "" }
  for _ = 1, MOST_POPS do
    local job_id = lists.pop(queue, 1)[1]
    if not job_id then
      return nil
    end
    local flat, verdict = activation.try(queue, job_id, entry, done.now_ms, done.skip_events)
    if verdict == "REVOKED" then
      drop_revoked(queue, job_id, done.now_ms)
    elseif flat then
      redis.call("INCR", queue .. "list-active")
      if not done.skip_events then
        events.emit(queue, "active", job_id)
      end
      return activated(done.job_id, job_id, "", flat)
    end
  end
end

--- The next entry of the stream, id and job id; the job id is nil when it has none.
local function read(queue, group, consumer)
  local reply = redis.pcall(
    "XREADGROUP", "GROUP", group, consumer, "COUNT", 1, "STREAMS", queue .. "stream", ">"
  )
  -- Without the stream or its group nothing is waiting; the worker's own read will say so.
  if not reply or reply.err then
    return nil
  end
  local entry = reply[1][2][1]
  return entry[1], stream.field(entry[2], "jobId")
end

local function from_stream(queue, done)
  for _ = 1, MOST_ENTRIES do
    local entry_id, job_id = read(queue, done.group, done.consumer)
    if not entry_id and shares.feed(queue, 1) > 0 then
      entry_id, job_id = read(queue, done.group, done.consumer)
    end
    if not entry_id then
      break
    end
    local flat, verdict
    if job_id then
      local entry = { id = entry_id, group = done.group }
      flat, verdict = activation.try(queue, job_id, entry, done.now_ms, done.skip_events)
    end
    if flat then
      return activated(done.job_id, job_id, entry_id, flat)
    elseif verdict == "REVOKED" then
      return { "NEXT_REVOKED", done.job_id, job_id, entry_id }
    elseif not job_id or verdict == "" then
      stream.settle(queue, done.group, entry_id)
    elseif verdict ~= "EXPIRED" then
      break
    end
  end
  return { "NEXT_NONE", done.job_id }
end

--- Activate the next job for `done.consumer`; returns the reply of glidemq_completeAndFetchNext.
function fetch.next(queue, done)
  return from_lists(queue, done) or from_stream(queue, done)
end

return fetch
