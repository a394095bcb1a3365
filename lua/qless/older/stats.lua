--- Return the statistics of a queue on a day.
--- @arg     queue name   the queue
--- @arg     date  number a time of that day
--- @returns JSON: `failed`, `failures`, `retries`, and `wait` and `run` with `total` (`count`), `mean`, `variance`, `std` and a
--- `histogram` of seconds up to a minute, minutes up to an hour, hours up to a day, and days, as many as are needed
--- @cost    O(1)

local older = require("older")
local stats = require("stats")

-- Where the counts of each unit are: after 60 of seconds, 59 of minutes and 23 of hours.
local FIRST = { s = 1, m = 60, h = 119, d = 142 }
-- Longer than a year is counted as a year, since a wrong clock can make any number of days.
local LEAST, MOST = 148, 142 + 365

local function histogram(key)
  local counts = {}
  for index = 1, LEAST do
    counts[index] = 0
  end
  local held = redis.call("HGETALL", key)
  for index = 1, #held, 2 do
    local unit, number = held[index]:match("^([smhd])(%-?%d+)$")
    if unit then
      local place = math.min(FIRST[unit] + math.max(tonumber(number), 0), MOST)
      for missing = #counts + 1, place do
        counts[missing] = 0
      end
      counts[place] = counts[place] + tonumber(held[index + 1])
    end
  end
  return counts
end

local found = stats.read(queue, date)
local texts = {}
for _, kind in ipairs({ "wait", "run" }) do
  local durations = found[kind]
  durations.total, durations.variance = durations.count, durations.std ^ 2
  durations.histogram = histogram("ql:s:" .. kind .. ":" .. stats.day(date) .. ":" .. queue)
  texts[kind] = cjson.encode(durations)
  found[kind] = nil
end
return older.object(found, texts)
