-- Statistics of a queue and day: how long jobs waited and ran, and how many failed.
local stats = {}

function stats.day(seconds)
  return ("%.0f"):format(seconds - seconds % 86400)
end

local function bucket(seconds)
  seconds = math.floor(seconds)
  if seconds < 60 then
    return "s" .. seconds
  elseif seconds < 3600 then
    return "m" .. math.floor(seconds / 60)
  elseif seconds < 86400 then
    return "h" .. math.floor(seconds / 3600)
  end
  return "d" .. math.floor(seconds / 86400)
end

--- Add durations to the mean and deviation (after Welford) and to the histogram; `kind` is `wait` or `run`.
function stats.add(now, kind, queue, durations)
  local key = "ql:s:" .. kind .. ":" .. stats.day(now) .. ":" .. queue
  local held = redis.call("HMGET", key, "total", "mean", "vk")
  local total, mean, vk = tonumber(held[1]) or 0, tonumber(held[2]) or 0, tonumber(held[3]) or 0
  local counts = {}
  for _, seconds in ipairs(durations) do
    local old_mean = mean
    total = total + 1
    mean = mean + (seconds - mean) / total
    vk = vk + (seconds - mean) * (seconds - old_mean)
    local name = bucket(seconds)
    counts[name] = (counts[name] or 0) + 1
  end
  redis.call("HSET", key, "total", total, "mean", mean, "vk", vk)
  for name, count in pairs(counts) do
    redis.call("HINCRBY", key, name, count)
  end
end

--- Add to one of `retries`, `failures` and `failed`.
function stats.count(when, queue, name, by)
  redis.call("HINCRBY", "ql:s:stats:" .. stats.day(when) .. ":" .. queue, name, by)
end

--- Return the names of the buckets that clients see.
local function buckets()
  local names = {}
  for _, unit in ipairs({ { "s", 0, 59 }, { "m", 1, 59 }, { "h", 1, 23 }, { "d", 1, 6 } }) do
    for number = unit[2], unit[3] do
      names[#names + 1] = unit[1] .. number
    end
  end
  return names
end

local function durations(key)
  local held = redis.call("HMGET", key, "total", "mean", "vk")
  local count = tonumber(held[1]) or 0
  local histogram = redis.call("HMGET", key, unpack(buckets()))
  for index, value in ipairs(histogram) do
    histogram[index] = tonumber(value) or 0
  end
  return {
    count = count,
    mean = tonumber(held[2]) or 0,
    std = count > 1 and math.sqrt((tonumber(held[3]) or 0) / (count - 1)) or 0,
    histogram = histogram,
  }
end

--- Return the statistics of a queue for the day of a time.
function stats.read(queue, when)
  local day = stats.day(when)
  local counts = redis.call("HMGET", "ql:s:stats:" .. day .. ":" .. queue, "retries", "failed", "failures")
  return {
    retries = tonumber(counts[1]) or 0,
    failed = tonumber(counts[2]) or 0,
    failures = tonumber(counts[3]) or 0,
    wait = durations("ql:s:wait:" .. day .. ":" .. queue),
    run = durations("ql:s:run:" .. day .. ":" .. queue),
  }
end

return stats
