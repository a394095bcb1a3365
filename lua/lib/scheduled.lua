--- The `scheduled` set: a score carries the priority band and the due time, so both order it.

local scheduled = {}

local SHIFT = 2 ^ 42

function scheduled.add(queue, member, priority, due)
  redis.call("ZADD", queue .. "scheduled", priority * SHIFT + due, member)
end

--- Priority band and due time of a score.
function scheduled.split(score)
  local band = math.floor(score / SHIFT)
  return band, score - band * SHIFT
end

--- The score as an exact range bound.
function scheduled.bound(band, due)
  return string.format("%.0f", band * SHIFT + due)
end

--- Band and due time of the lowest member that is in no band below `band`; nil without such a member.
function scheduled.first(key, band)
  local from = band and scheduled.bound(band, 0) or "-inf"
  local lowest = redis.call("ZRANGE", key, from, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
  if lowest[2] then
    return scheduled.split(tonumber(lowest[2]))
  end
  return nil
end

--- Due time of the first member of a band that is due after a time; nil without one.
function scheduled.first_after(key, band, time)
  local from, to = "(" .. scheduled.bound(band, time), "(" .. scheduled.bound(band + 1, 0)
  local lowest = redis.call("ZRANGE", key, from, to, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
  if lowest[2] then
    return select(2, scheduled.split(tonumber(lowest[2])))
  end
  return nil
end

return scheduled
