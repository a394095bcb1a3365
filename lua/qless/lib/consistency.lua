-- Records that contradict each other: what they are, and how they are repaired.
local dependencies = require("dependencies")
local jobs = require("jobs")
local places = require("places")

local consistency = {}

local SETS = { waiting = "work", stalled = "work", scheduled = "scheduled", depends = "depends", running = "locks" }

local function exists(jid)
  return redis.call("EXISTS", "ql:j:" .. jid) == 1
end

--- Return whether any known queue, or the job's own, holds a job.
local function is_placed(job)
  local queues = redis.call("ZRANGE", "ql:queues", 0, -1)
  queues[#queues + 1] = job.queue
  for index = #queues, 1, -1 do
    for _, set in ipairs({ "work", "locks", "scheduled", "depends" }) do
      if redis.call("ZSCORE", "ql:q:" .. queues[index] .. "-" .. set, job.jid) then
        return true
      end
    end
  end
  return false
end

--- A job that no queue holds would never run: it is made ready, or waits for what it depends on.
local function check_job(now, key, resolve)
  local jid = key:sub(6)
  local job = jobs.read(jid)
  if not job or not SETS[job.state] or not job.queue or job.queue == "" or is_placed(job) then
    return 0
  end
  if resolve then
    places.release(job.worker, jid)
    redis.call("HMSET", key, "state", "waiting", "worker", "", "expires", 0)
    dependencies.place(now, job.queue, jid, job.priority, 0)
    places.learn(now, job.queue)
  end
  return 1
end

--- Entries of a set or list whose job does not exist.
local function check_entries(key, kind, resolve, is_sound, remove)
  local found = 0
  local read = { zset = "ZRANGE", list = "LRANGE" }
  local jids = read[kind] and redis.call(read[kind], key, 0, -1) or redis.call("SMEMBERS", key)
  for _, jid in ipairs(jids) do
    if not is_sound(jid) then
      found = found + 1
      if resolve then
        remove(jid)
      end
    end
  end
  return found
end

local function removal(command, key)
  return function(jid)
    if command == "LREM" then
      redis.call("LREM", key, 0, jid)
    else
      redis.call(command, key, jid)
    end
  end
end

--- Whether a job still has to end before those that wait for it.
local function is_live(jid)
  local state = redis.call("HGET", "ql:j:" .. jid, "state")
  return state and state ~= "complete"
end

local function is_failed(jid)
  return redis.call("HGET", "ql:j:" .. jid, "state") == "failed"
end

--- Have a job run whose last dependency is gone.
local function free(now, key, resolve)
  local jid = key:sub(6, -#"-dependencies" - 1)
  local job = resolve and redis.call("SCARD", key) == 0 and jobs.read(jid)
  if job and job.state == "depends" then
    redis.call("ZREM", "ql:q:" .. job.queue .. "-depends", jid)
    redis.call("HSET", "ql:j:" .. jid, "state", "waiting")
    places.work(job.queue, jid, job.priority, now)
  end
end

--- Check one key. Return the kind of what is wrong, and how often it is.
function consistency.check(now, key, resolve)
  local kind = redis.call("TYPE", key).ok
  local function entries(is_sound, command)
    return check_entries(key, kind, resolve, is_sound, removal(command, key))
  end
  if kind == "hash" and key:sub(1, 5) == "ql:j:" then
    return "jobs in no queue", check_job(now, key, resolve)
  elseif kind == "set" and key:find("^ql:j:.*%-dependencies$") then
    local count = entries(is_live, "SREM")
    free(now, key, count > 0 and resolve)
    return "dependencies on gone jobs", count
  elseif kind == "set" and key:find("^ql:j:.*%-dependents$") then
    return "dependents that are gone", entries(exists, "SREM")
  elseif kind == "list" and key:find("^ql:f:") then
    return "failures of jobs that did not fail", entries(is_failed, "LREM")
  elseif kind == "zset" and key:find("^ql:t:") then
    return "tags of gone jobs", entries(exists, "ZREM")
  elseif kind == "zset" and key:find("^ql:q:.*%-locks$") then
    return "locks without jobs", entries(exists, "ZREM")
  elseif kind == "zset" and (key:find("^ql:q:.*%-work$") or key:find("^ql:q:.*%-scheduled$")) then
    return "places of gone jobs", entries(exists, "ZREM")
  elseif kind == "zset" and (key:find("^ql:q:.*%-depends$") or key:find("^ql:w:.*:jobs$")) then
    return "places of gone jobs", entries(exists, "ZREM")
  end
  return nil, 0
end

return consistency
