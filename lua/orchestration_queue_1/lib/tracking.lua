--- Tracked jobs: a set of their ids, and a field on each record. Retention takes them out of the sets of finished jobs, and
--- keeps their records.

local purge = require("purge")
local retention = require("retention")

local tracking = { FIELD = "tracked" }

local DONE = { completed = "completed", failed = "failed" }

local function key_of(queue)
  return queue .. "tracked"
end

function retention.discard(queue, job_ids)
  if not job_ids[1] then
    return
  end
  -- A key of another type must not keep jobs from being settled.
  local tracked, left = redis.pcall("ZMSCORE", key_of(queue), unpack(job_ids)), {}
  for index, job_id in ipairs(job_ids) do
    if tracked.err or not tracked[index] then
      left[#left + 1] = job_id
    end
  end
  purge.jobs(queue, left)
end

--- Forget tracked jobs that were removed.
local function sweep(queue)
  for _, job_id in ipairs(redis.call("ZRANGE", key_of(queue), 0, -1)) do
    if redis.call("EXISTS", queue .. "job:" .. job_id) == 0 then
      redis.call("ZREM", key_of(queue), job_id)
    end
  end
end

--- Track a job; returns the function's reply.
function tracking.add(queue, job_id, now, most)
  if redis.call("ZSCORE", key_of(queue), job_id) then
    return "ok"
  end
  if redis.call("ZCARD", key_of(queue)) >= most then
    sweep(queue)
    if redis.call("ZCARD", key_of(queue)) >= most then
      return "too_many"
    end
  end
  redis.call("ZADD", key_of(queue), string.format("%.0f", now), job_id)
  redis.call("HSET", queue .. "job:" .. job_id, tracking.FIELD, string.format("%.0f", now))
  return "ok"
end

--- Stop tracking a job. If retention no longer keeps it, it is removed.
function tracking.drop(queue, job_id)
  redis.call("ZREM", key_of(queue), job_id)
  redis.call("HDEL", queue .. "job:" .. job_id, tracking.FIELD)
  local set = DONE[redis.call("HGET", queue .. "job:" .. job_id, "state")]
  if set and not redis.call("ZSCORE", queue .. set, job_id) then
    purge.jobs(queue, { job_id })
  end
  return "ok"
end

return tracking
