--- The job's hash, read.

local numbers = require("numbers")

local record = {}

--- What decides about a job: everything but its payloads.
local CONTROL = {
  "state", "name", "groupKey", "orderingSeq", "orderingKey", "expireAt", "processedOn", "lastActive",
  "lifo", "priority", "takenFrom", "cost", "timestamp", "revoked", "depsCompleted", "share", "entry",
  "slotFreed",
}

--- The control fields as a table without the absent ones; nil when there is no such job.
function record.load(queue, job_id)
  local key = queue .. "job:" .. job_id
  -- A key that is not a hash is not a job: it must not keep its neighbors from being read.
  local values = redis.pcall("HMGET", key, unpack(CONTROL))
  if values.err then
    return nil
  end
  local job, found = {}, false
  for index = 1, #CONTROL do
    if values[index] then
      job[CONTROL[index]], found = values[index], true
    end
  end
  if found or redis.call("EXISTS", key) == 1 then
    return job
  end
  return nil
end

--- The queue and the id that a job's key names.
function record.locate(job_key)
  return job_key:match("^(.*:)job:([^:]*)$")
end

--- The names of the control fields, as a set.
function record.control()
  local names = {}
  for index = 1, #CONTROL do -- a library has no `ipairs` while it loads
    names[CONTROL[index]] = true
  end
  return names
end

--- When a job was due on its queue: by its record, or by `otherwise`.
function record.arrival(queue, job_id, otherwise)
  local times = redis.call("HMGET", queue .. "job:" .. job_id, "timestamp", "delay")
  local time = tonumber(times[1] or nil) or tonumber(otherwise)
  return time and time + (tonumber(times[2]) or 0)
end

function record.has_ended(job)
  return job.state == "completed" or job.state == "failed"
end

function record.sequence(job)
  return numbers.whole(job.orderingSeq) or 0
end

function record.priority(job)
  return numbers.whole(job.priority) or 0
end

return record
