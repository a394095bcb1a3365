--- Job ids: the caller's own, or the next of the queue's counter.

local chunks = require("chunks")

local ids = {}

local MOST_COLLISIONS = 1000
-- Above this a double, and so this library, cannot tell neighbors apart.
local LARGEST = 2 ^ 53 - 1

function ids.exists(queue, job_id)
  return redis.call("EXISTS", queue .. "job:" .. job_id) == 1
end

--- Keep automatic ids clear of a caller's numeric one.
local function advance(queue, custom_id)
  local number = custom_id:match("^%d+$") and tonumber(custom_id)
  if number and number > 0 and number <= LARGEST then
    if number > (tonumber(redis.call("GET", queue .. "id")) or 0) then
      redis.call("SET", queue .. "id", string.format("%.0f", number))
    end
  end
end

--- Take an id for a new job: `custom_id`, which must be free, or an automatic one that is neither in use nor in
--- `reserved`, a set of job keys. nil when a thousand in a row are.
function ids.take(queue, custom_id, reserved)
  if custom_id ~= "" then
    advance(queue, custom_id)
    return custom_id
  end
  for _ = 0, MOST_COLLISIONS do
    local job_id = string.format("%d", redis.call("INCR", queue .. "id"))
    if not ids.exists(queue, job_id) and not (reserved and reserved[queue .. "job:" .. job_id]) then
      return job_id
    end
  end
  return nil
end

--- Take automatic ids for `count` new jobs at once; fewer when some of the next ones are in use.
function ids.take_many(queue, count)
  local last = redis.call("INCRBY", queue .. "id", count)
  local taken, keys, free = {}, {}, {}
  for index = 1, count do
    taken[index] = string.format("%d", last - count + index)
    keys[index] = queue .. "job:" .. taken[index]
  end
  if not chunks.any_exist(keys) then
    return taken
  end
  for _, job_id in ipairs(taken) do
    if not ids.exists(queue, job_id) then
      free[#free + 1] = job_id
    end
  end
  return free
end

return ids
