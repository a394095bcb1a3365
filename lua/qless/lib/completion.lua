-- The end of a job, or of its work in one queue.
local config = require("config")
local dependencies = require("dependencies")
local history = require("history")
local jobs = require("jobs")
local messages = require("messages")
local places = require("places")
local stats = require("stats")
local tags = require("tags")

local completion = {}

local function forget(jid)
  tags.clear(jid, redis.call("HGET", "ql:j:" .. jid, "tags"))
  redis.call("DEL", "ql:j:" .. jid, "ql:j:" .. jid .. "-history")
end

--- Forget completed jobs that are too old or too many.
local function expire(now)
  local history_s = config.number("jobs-history", 604800)
  local old = redis.call("ZRANGEBYSCORE", "ql:completed", "-inf", now - history_s)
  for _, jid in ipairs(old) do
    forget(jid)
  end
  redis.call("ZREMRANGEBYSCORE", "ql:completed", "-inf", now - history_s)
  local kept = config.number("jobs-history-count", 50000)
  local surplus = redis.call("ZRANGE", "ql:completed", 0, -1 - kept)
  for _, jid in ipairs(surplus) do
    forget(jid)
  end
  redis.call("ZREMRANGEBYRANK", "ql:completed", 0, -1 - kept)
end

--- End a job's work in its queue.
function completion.leave(now, job, data)
  local key = "ql:j:" .. job.jid
  history.add(job.jid, now, "done")
  places.leave(job.queue, job.jid)
  stats.add(now, "run", job.queue, now - (tonumber(redis.call("HGET", key, "time")) or now))
  places.release(job.worker, job.jid)
  redis.call(
    "HMSET", key,
    "data", data, "time", jobs.time(now), "worker", "", "expires", 0, "failure", "{}", "remaining", job.retries
  )
  messages.tracked("completed", job.jid)
end

--- Move a job on to its next queue. Return its state.
function completion.advance(now, job, options)
  local jid, queue = job.jid, options.next
  local waits_for = options.depends or {}
  messages.log("advanced", { jid = jid, queue = job.queue, to = queue })
  history.add(jid, now, "put", { q = queue })
  places.learn(now, queue)
  redis.call("HMSET", "ql:j:" .. jid, "state", "waiting", "queue", queue)
  dependencies.link(jid, waits_for)
  return dependencies.place(now, queue, jid, job.priority, options.delay or 0, #waits_for > 0)
end

--- End a job for good.
function completion.finish(now, job)
  messages.log("completed", { jid = job.jid, queue = job.queue })
  redis.call("HMSET", "ql:j:" .. job.jid, "state", "complete", "queue", "")
  redis.call("ZADD", "ql:completed", now, job.jid)
  expire(now)
  dependencies.release(now, job.jid)
  return "complete"
end

return completion
