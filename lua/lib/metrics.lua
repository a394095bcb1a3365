--- Counts of finished jobs and their durations, a pair of fields per minute, kept for a day.

local metrics = {}

local MINUTE_MS = 60000
local DAY_MS = 86400000
local PRUNE_EVERY = 1000
local CHUNK = 1000

local function prune(key, oldest_minute)
  local old = {}
  for _, field in ipairs(redis.call("HKEYS", key)) do
    local minute = tonumber(field:match("^m:(%d+):"))
    if minute and minute < oldest_minute then
      old[#old + 1] = field
    end
  end
  for first = 1, #old, CHUNK do
    redis.call("HDEL", key, unpack(old, first, math.min(first + CHUNK - 1, #old)))
  end
end

--- Count one job; `outcome` is `completed` or `failed`, `processed_on` is nil when it never started.
function metrics.record(queue, outcome, now, processed_on)
  local key = queue .. "metrics:" .. outcome
  local minute = now - now % MINUTE_MS
  local bucket = string.format("m:%.0f:", minute)
  local duration = now - (tonumber(processed_on) or now)
  local count = redis.call("HINCRBY", key, bucket .. "c", 1)
  if duration > 0 then
    redis.call("HINCRBY", key, bucket .. "d", duration)
  end
  if count % PRUNE_EVERY == 0 then
    prune(key, minute - DAY_MS)
  end
end

return metrics
