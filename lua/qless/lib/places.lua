-- Where a job is: in one of a queue's sorted sets.
local places = {}

--- Have a queue be listed. Its place in the list is when it was first seen.
function places.learn(now, queue)
  redis.call("ZADD", "ql:queues", "NX", now, queue)
end

--- Make a job ready. The highest score comes first: high priority, then early time.
function places.work(queue, jid, priority, time)
  redis.call("ZADD", "ql:q:" .. queue .. "-work", (tonumber(priority) or 0) - time / 10000000000, jid)
end

function places.schedule(queue, jid, due)
  redis.call("ZADD", "ql:q:" .. queue .. "-scheduled", due, jid)
end

function places.depend(queue, jid, now)
  redis.call("ZADD", "ql:q:" .. queue .. "-depends", now, jid)
end

--- Lock jobs of a queue for a worker.
function places.lock(queue, jids, worker, expires)
  local entries = {}
  for _, jid in ipairs(jids) do
    entries[#entries + 1] = expires
    entries[#entries + 1] = jid
  end
  redis.call("ZADD", "ql:w:" .. worker .. ":jobs", unpack(entries))
  redis.call("ZADD", "ql:q:" .. queue .. "-locks", unpack(entries))
end

--- Take jobs out of whichever of a queue's sets holds them.
function places.leave(queue, ...)
  local key = "ql:q:" .. queue
  redis.call("ZREM", key .. "-locks", ...)
  redis.call("ZREM", key .. "-work", ...)
  -- Most queues have none of these.
  if redis.call("EXISTS", key .. "-scheduled", key .. "-depends") > 0 then
    redis.call("ZREM", key .. "-scheduled", ...)
    redis.call("ZREM", key .. "-depends", ...)
  end
end

--- Take jobs from the list of their worker.
function places.release(worker, ...)
  if worker and worker ~= "" then
    redis.call("ZREM", "ql:w:" .. worker .. ":jobs", ...)
  end
end

--- Make scheduled jobs ready whose time has come: at most `limit`, or all.
function places.move_due(now, queue, limit)
  local key = "ql:q:" .. queue .. "-scheduled"
  local due = redis.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit or -1)
  for _, jid in ipairs(due) do
    local priority = redis.call("HGET", "ql:j:" .. jid, "priority")
    redis.call("ZREM", key, jid)
    -- An entry without a job would be handed out as nothing.
    if priority then
      places.work(queue, jid, priority, now)
      redis.call("HSET", "ql:j:" .. jid, "state", "waiting")
    end
  end
end

--- Count the jobs of a queue.
function places.count(now, queue)
  local key = "ql:q:" .. queue
  local stalled = redis.call("ZCOUNT", key .. "-locks", 0, now)
  return {
    name = queue,
    waiting = redis.call("ZCARD", key .. "-work"),
    running = redis.call("ZCARD", key .. "-locks") - stalled,
    stalled = stalled,
    scheduled = redis.call("ZCARD", key .. "-scheduled"),
    depends = redis.call("ZCARD", key .. "-depends"),
    recurring = redis.call("ZCARD", key .. "-recur"),
    paused = redis.call("SISMEMBER", "ql:paused_queues", queue) == 1,
  }
end

return places
