--- Removes jobs with all they left behind.

local chunks = require("chunks")
local events = require("events")

local purge = {}

local PARTS = { "job:", "log:", "deps:", "parents:", "jstream:", "signals:" }
local JOBS_PER_COMMAND = 100

function purge.jobs(queue, job_ids)
  for first = 1, #job_ids, JOBS_PER_COMMAND do
    local keys = {}
    for index = first, math.min(first + JOBS_PER_COMMAND - 1, #job_ids) do
      for _, part in ipairs(PARTS) do
        keys[#keys + 1] = queue .. part .. job_ids[index]
      end
    end
    redis.call("UNLINK", unpack(keys))
  end
end

--- Take jobs out of a sorted set.
function purge.members(key, job_ids)
  chunks.call(job_ids, "ZREM", key)
end

--- Remove jobs that finished at a time or before, oldest first; returns their ids.
function purge.finished(queue, key, cutoff_ms, limit)
  if limit <= 0 or not cutoff_ms then
    return {}
  end
  local job_ids = redis.call("ZRANGE", key, "-inf", string.format("%.0f", cutoff_ms), "BYSCORE", "LIMIT", 0, limit)
  if job_ids[1] then
    purge.jobs(queue, job_ids)
    purge.members(key, job_ids)
    events.emit(queue, "cleaned", #job_ids)
  end
  return job_ids
end

return purge
