--- Lifecycle events: one stream per queue, trimmed to about the last thousand, or to what a registered reader still needs.

local guarded = require("guarded")

local events = {}

events.READERS = "events:readers"
-- The field with the earliest position of all readers; no reader's name is empty.
events.SLOWEST = ""

local KEPT = 1000
local MOST, MOST_BYTES = 1000000, 256 * 1024 * 1024
local MOST_PER_CALL = 100000
-- Trimming reads whether anyone reads, so it goes once for many events. A prime, so that a rhythm of several queues
-- leaves none of them out.
local EVERY = 97
local since_trim = 0

--- Drop what exceeds the bounds even if it is unread: the server's memory matters more.
local function limit(key, length)
  local size = redis.pcall("MEMORY", "USAGE", key, "SAMPLES", 0) -- 1.2 ms for a million events
  local most = MOST
  if type(size) == "number" and size > MOST_BYTES then
    most = math.min(most, math.floor(length * MOST_BYTES / size))
  end
  if length > most then
    guarded.call("XTRIM", key, "MAXLEN", "~", math.max(KEPT, most), "LIMIT", MOST_PER_CALL)
  end
end

--- Drop old events: what all readers have read, but never the last thousand; without readers, all before these.
local function trim(queue)
  local key = queue .. "events"
  local slowest = guarded.call("HGET", queue .. events.READERS, events.SLOWEST)
  if not slowest then
    guarded.call("XTRIM", key, "MAXLEN", "~", KEPT, "LIMIT", MOST_PER_CALL)
    return
  end
  local length = redis.call("XLEN", key)
  if length > KEPT then
    guarded.call("XTRIM", key, "MINID", "~", slowest, "LIMIT", math.min(length - KEPT, MOST_PER_CALL))
    limit(key, redis.call("XLEN", key))
  end
end

function events.emit(queue, type, job_id, ...)
  redis.call("XADD", queue .. "events", "*", "event", type, "jobId", job_id, ...)
  since_trim = since_trim + 1
  if since_trim >= EVERY then
    since_trim = 0
    pcall(trim, queue) -- a user who may not send one of its commands must still be able to end jobs
  end
end

return events
