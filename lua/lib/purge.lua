--- Removes jobs with all they left behind.

local chunks = require("chunks")

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

return purge
