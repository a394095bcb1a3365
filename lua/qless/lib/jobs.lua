-- The record of a job, read and shown.
local calls = require("calls")
local history = require("history")

local jobs = {}

local FIELDS = {
  "jid", "klass", "state", "queue", "worker", "priority", "expires", "retries", "remaining", "data", "tags",
  "failure", "spawned_from_jid", "time",
}

--- Return the fields of a job by name, as text; nil when it does not exist.
function jobs.read(jid)
  local values = redis.call("HMGET", "ql:j:" .. jid, unpack(FIELDS))
  if not values[1] then
    return nil
  end
  local job = {}
  for index = 1, #FIELDS do
    job[FIELDS[index]] = values[index]
  end
  return job
end

--- Return a job that `worker` runs, or refuse: existence, state and owner are checked in this order.
function jobs.read_running(command, jid, worker)
  local job = jobs.read(jid)
  if not job then
    calls.refuse(command, "Job " .. jid .. " does not exist")
  elseif job.state ~= "running" then
    calls.refuse(command, "Job " .. jid .. " is not currently running: " .. job.state)
  elseif worker and job.worker ~= worker then
    calls.refuse(command, "Job " .. jid .. " given out to another worker: " .. job.worker)
  end
  return job
end

--- Take one off the retries that a job has left; return how many those are. A number of retries may have a fraction,
-- which HINCRBY refuses: one such job would keep its queue from handing out others.
function jobs.count_down(job)
  local remaining = math.floor(tonumber(job.remaining) or 0) - 1
  redis.call("HSET", "ql:j:" .. job.jid, "remaining", remaining)
  return remaining
end

local function decoded(encoded)
  return encoded and encoded ~= "{}" and encoded ~= "[]" and cjson.decode(encoded) or {}
end

--- Return a job as clients see it, from its fields and whether it is `tracked`.
function jobs.present(job)
  local key = "ql:j:" .. job.jid
  job.priority = tonumber(job.priority)
  job.expires = tonumber(job.expires) or 0
  job.retries = tonumber(job.retries)
  job.remaining = math.floor(tonumber(job.remaining) or 0)
  job.data = job.data or "{}"
  job.tags = decoded(job.tags)
  job.failure = decoded(job.failure)
  job.history = history.read(job.jid)
  local is_linked = redis.call("EXISTS", key .. "-dependents", key .. "-dependencies") > 0
  job.dependents = is_linked and redis.call("SMEMBERS", key .. "-dependents") or {}
  job.dependencies = is_linked and redis.call("SMEMBERS", key .. "-dependencies") or {}
  job.time = nil
  return job
end

--- Return a job as clients see it; nil when it does not exist.
function jobs.show(jid)
  local job = jobs.read(jid)
  if job then
    job.tracked = redis.call("ZSCORE", "ql:tracked", jid) ~= false
  end
  return job and jobs.present(job)
end

--- Return jobs as clients see them; those that do not exist are left out.
function jobs.list(jids)
  local shown = {}
  for _, jid in ipairs(jids) do
    shown[#shown + 1] = jobs.show(jid)
  end
  return shown
end

--- Return a time as the record keeps it: in full, as statistics are computed from it.
function jobs.time(seconds)
  return ("%.20f"):format(seconds)
end

return jobs
