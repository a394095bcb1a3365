--- How many finished jobs stay, and how long.

local purge = require("purge")

local retention = {}

local MOST_PER_CALL = 1000

--- Remove jobs that are no longer in a set. A library that keeps some of them sets its own.
retention.discard = purge.jobs

local function remove_oldest(queue, set, number)
  if number <= 0 then
    return
  end
  local popped = redis.call("ZPOPMIN", queue .. set, math.min(number, MOST_PER_CALL))
  local ids = {}
  for index = 1, #popped, 2 do
    ids[#ids + 1] = popped[index]
  end
  retention.discard(queue, ids)
end

--- Remove from a set, `completed` or `failed`, which these jobs have just entered, the jobs that the rule does not keep.
function retention.apply(queue, set, job_ids, now, rule)
  if rule.broadcast then
    return
  elseif rule.remove_mode == "true" then
    purge.members(queue .. set, job_ids)
    retention.discard(queue, job_ids)
    return
  end
  if rule.remove_mode == "age_count" and rule.remove_age_s > 0 then
    local cutoff = string.format("%.0f", now - rule.remove_age_s * 1000)
    remove_oldest(queue, set, redis.call("ZCOUNT", queue .. set, 0, cutoff))
  end
  if (rule.remove_mode == "age_count" or rule.remove_mode == "count") and rule.remove_count > 0 then
    remove_oldest(queue, set, redis.call("ZCARD", queue .. set) - rule.remove_count)
  end
end

return retention
