--- Removes jobs with all they left behind.

local chunks = require("chunks")
local events = require("events")
local guarded = require("guarded")

local purge = {}

local PARTS = { "job:", "log:", "deps:", "parents:", "jstream:", "signals:", "steps:" }
local JOBS_PER_COMMAND = 100

-- Enough for a flow to end, after which its own record says how.
local ENDS_KEPT_S = 30 * 86400
local LONGEST_REASON = 500

--- Note how nodes of flows ended, whose records are about to be removed: nothing else says so of a node that none waits
--- for. Ids of nodes have a dot, so that other jobs cost no command.
local function note_ends(queue, job_ids)
  for _, job_id in ipairs(job_ids) do
    if job_id:find(".", 1, true) then
      local record = queue .. "job:" .. job_id
      local fields = redis.pcall("HMGET", record, "flow", "state", "outcome", "finishedOn", "failedReason")
      local flow, state = fields[1], fields[2]
      if flow and (state == "completed" or state == "failed") then
        local key = queue .. "flow-ends:" .. flow
        local outcome = state == "failed" and fields[3] or state
        local reason = (fields[5] or ""):sub(1, LONGEST_REASON)
        guarded.call("HSET", key, job_id, table.concat({ outcome, fields[4] or "", reason }, " "))
        redis.call("EXPIRE", key, ENDS_KEPT_S)
      end
    end
  end
end

function purge.jobs(queue, job_ids)
  note_ends(queue, job_ids)
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
