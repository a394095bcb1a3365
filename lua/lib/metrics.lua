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

local last_minute, last_bucket

--- How the fields of a minute begin.
local function bucket_of(minute)
  if minute ~= last_minute then
    last_minute, last_bucket = minute, string.format("m:%.0f:", minute)
  end
  return last_bucket
end

--- How long a job has run; 0 when it never started or clocks disagree.
function metrics.duration(now, processed_on)
  local began = type(processed_on) == "number" and processed_on or tonumber(processed_on) or now
  return now > began and now - began or 0
end

--- Count jobs and the sum of their durations; `outcome` is `completed` or `failed`.
function metrics.add(queue, outcome, now, jobs, duration)
  local key = queue .. "metrics:" .. outcome
  local minute = now - now % MINUTE_MS
  local bucket = bucket_of(minute)
  local count = redis.call("HINCRBY", key, bucket .. "c", jobs)
  if duration > 0 then
    redis.call("HINCRBY", key, bucket .. "d", duration)
  end
  if count % PRUNE_EVERY < jobs then
    prune(key, minute - DAY_MS)
  end
end

--- Count one job; `processed_on` is nil when it never started.
function metrics.record(queue, outcome, now, processed_on)
  metrics.add(queue, outcome, now, 1, metrics.duration(now, processed_on))
end

return metrics
