-- Jobs that wait for others.
local jobs = require("jobs")
local places = require("places")

local dependencies = {}

--- Have a job wait for those of `jids` that exist and are not complete.
function dependencies.link(jid, jids)
  for _, other in ipairs(jids) do
    local state = redis.call("HGET", "ql:j:" .. other, "state")
    if state and state ~= "complete" then
      redis.call("SADD", "ql:j:" .. other .. "-dependents", jid)
      redis.call("SADD", "ql:j:" .. jid .. "-dependencies", other)
    end
  end
end

--- Have a job wait for no other job.
function dependencies.unlink(jid)
  local key = "ql:j:" .. jid .. "-dependencies"
  for _, other in ipairs(redis.call("SMEMBERS", key)) do
    redis.call("SREM", "ql:j:" .. other .. "-dependents", jid)
  end
  redis.call("DEL", key)
end

--- Put a job where it belongs: with those that wait for others, with those that wait for their time, or with the ready.
-- Return its state. `drops_delay` makes a job ready at once that names only jobs that have ended.
function dependencies.place(now, queue, jid, priority, delay, drops_delay)
  local key = "ql:j:" .. jid
  if redis.call("SCARD", key .. "-dependencies") > 0 then
    places.depend(queue, jid, now)
    redis.call("HSET", key, "state", "depends")
    if delay > 0 then
      redis.call("HSET", key, "scheduled", now + delay)
    end
    return "depends"
  elseif delay > 0 and not drops_delay then
    places.schedule(queue, jid, now + delay)
    return "scheduled"
  end
  places.work(queue, jid, priority, now)
  return "waiting"
end

--- Let those go that wait for a job which is complete now.
function dependencies.release(now, jid)
  local key = "ql:j:" .. jid .. "-dependents"
  local dependents = redis.call("SMEMBERS", key)
  for _, dependent in ipairs(dependents) do
    local waits = "ql:j:" .. dependent .. "-dependencies"
    redis.call("SREM", waits, jid)
    local job = redis.call("SCARD", waits) == 0 and jobs.read(dependent)
    if job and job.queue and job.state == "depends" then
      redis.call("ZREM", "ql:q:" .. job.queue .. "-depends", dependent)
      local due = tonumber(redis.call("HGET", "ql:j:" .. dependent, "scheduled"))
      if due then
        places.schedule(job.queue, dependent, due)
        redis.call("HSET", "ql:j:" .. dependent, "state", "scheduled")
        redis.call("HDEL", "ql:j:" .. dependent, "scheduled")
      else
        places.work(job.queue, dependent, job.priority, now)
        redis.call("HSET", "ql:j:" .. dependent, "state", "waiting")
      end
    end
  end
  if #dependents > 0 then
    redis.call("DEL", key)
  end
end

return dependencies
