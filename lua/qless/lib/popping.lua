-- Hands out jobs: expired locks first, then recurring and due jobs, then ready ones.
local config = require("config")
local failures = require("failures")
local history = require("history")
local jobs = require("jobs")
local messages = require("messages")
local places = require("places")
local recurring = require("recurring")
local stats = require("stats")

local popping = {}

-- How many due jobs a call of the older form makes ready at least, so that the urgent ones among them come first, and how
-- often it asks again for expired locks.
local DUE, PASSES = 200, 100

--- Warn the worker of an expired lock, and leave it the time of grace.
local function warn(now, queue, job, grace)
  messages.tracked("stalled", job.jid)
  history.add(job.jid, now, "timed-out")
  redis.call("HSET", "ql:j:" .. job.jid, "grace", 1)
  messages.lock_lost(job.jid, job.worker)
  stats.count(now, queue, "retries", 1)
  redis.call("ZADD", "ql:q:" .. queue .. "-locks", now + grace, job.jid)
end

--- Take a job from the worker that lost it. Return whether it may run again.
local function hand_over(now, queue, job)
  redis.call("HDEL", "ql:j:" .. job.jid, "grace")
  if jobs.count_down(job) >= 0 then
    return true
  end
  local failure = failures.exhausted(now, job.queue, queue)
  failures.exhaust(now, queue, job, failure)
  messages.log("failed", { jid = job.jid, worker = job.worker, group = failure.group, message = failure.message })
  return false
end

--- Handle at most `count` expired locks, the oldest first. Return the jobs to deliver.
local function expired(now, queue, count, grace)
  local locks = "ql:q:" .. queue .. "-locks"
  local due = redis.call("ZRANGEBYSCORE", locks, "-inf", now, "LIMIT", 0, count)
  grace = grace or due[1] and config.number("grace-period", 10)
  local taken = {}
  for _, jid in ipairs(due) do
    local job = jobs.read(jid)
    if not job then
      redis.call("ZREM", locks, jid)
    else
      places.release(job.worker, jid)
      -- Without a grace period, the worker is notified and loses its job immediately, even if it was notified before.
      local is_warned = grace > 0 and redis.call("HGET", "ql:j:" .. jid, "grace") == "1"
      if not is_warned then
        warn(now, queue, job, grace)
      end
      if (is_warned or grace <= 0) and hand_over(now, queue, job) then
        taken[#taken + 1] = jid
      end
    end
  end
  return taken
end

--- Return how many jobs may start: `count`, or less if the queue has its own limit.
local function allowed(now, queue, count)
  local limit = config.number(queue .. "-max-concurrency", 0)
  if limit > 0 then
    return math.min(count, limit - redis.call("ZCOUNT", "ql:q:" .. queue .. "-locks", now, "+inf"))
  end
  return count
end

--- Hand jobs of a queue to a worker, at most 100 a call. Add their ids to `popped` and their fields to `records`.
local function hand_out(now, queue, worker, jids, popped, records)
  local entry, limit = history.entry(now, "popped", { worker = worker }), history.limit()
  local time, expires = jobs.time(now), now + config.heartbeat(queue)
  local tracks = redis.call("EXISTS", "ql:tracked") == 1
  local taken, waits = {}, {}
  for _, jid in ipairs(jids) do
    local job = jobs.read(jid)
    -- An entry without a job is dropped: it would keep the queue from ever handing out another.
    if not job then
      redis.call("ZREM", "ql:q:" .. queue .. "-locks", jid)
    else
      history.append(jid, entry, limit)
      redis.call("HSET", "ql:j:" .. jid, "time", time, "worker", worker, "expires", expires, "state", "running")
      job.worker, job.expires, job.state = worker, expires, "running"
      job.tracked = tracks and messages.tracked("popped", jid)
      taken[#taken + 1], waits[#waits + 1] = jid, now - (tonumber(job.time) or now)
      popped[#popped + 1], records[jid] = jid, job
    end
  end
  if taken[1] then
    places.lock(queue, taken, worker, expires)
    stats.add(now, "wait", queue, waits)
  end
  redis.call("ZREM", "ql:q:" .. queue .. "-work", unpack(jids))
end

--- Return the ready jobs that come next, after having made those ready whose time has come: as many as are asked for,
-- in the older form up to `DUE`.
local function ready(now, queue, count, is_older)
  if count <= 0 then
    return {}
  end
  recurring.spawn(now, queue, count)
  places.move_due(now, queue, is_older and math.max(count, DUE) or count)
  return redis.call("ZREVRANGE", "ql:q:" .. queue .. "-work", 0, count - 1)
end

--- Hand out at most `count` jobs of a queue, and return them as clients see them. In the older form, a worker that lost
-- a job has no time left for it, and no job is handed out before one whose lock expired.
function popping.pop(now, queue, worker, count, is_older)
  count = math.floor(count)
  if redis.call("SISMEMBER", "ql:paused_queues", queue) == 1 then
    return {}
  end
  redis.call("ZADD", "ql:workers", now, worker)
  count = allowed(now, queue, count)
  if count <= 0 then
    return {}
  end
  local popped, records = {}, {}
  local function take(jids)
    for first = 1, #jids, 100 do
      hand_out(now, queue, worker, { unpack(jids, first, math.min(first + 99, #jids)) }, popped, records)
    end
    return #jids > 0
  end
  for _ = 1, is_older and PASSES or 1 do
    local locked = redis.call("ZCARD", "ql:q:" .. queue .. "-locks")
    take(expired(now, queue, count - #popped, is_older and 0 or nil))
    -- Again, when jobs had used up their retries: those are no longer locked.
    if #popped >= count or redis.call("ZCARD", "ql:q:" .. queue .. "-locks") >= locked then
      break
    end
  end
  -- Again, when entries without a job were dropped.
  while #popped < count and take(ready(now, queue, count - #popped, is_older)) do
  end
  -- Shown as it is in the end, and once: a recurring job that was deleted and made again can make one again that expired.
  for index, jid in ipairs(popped) do
    local job = records[jid]
    popped[index] = job.history and job or jobs.present(job)
  end
  return popped
end

--- Return at most `count` jobs that would be handed out.
function popping.peek(now, queue, count, is_older)
  count = math.floor(count)
  local found = {}
  if count > 0 then
    found = redis.call("ZRANGEBYSCORE", "ql:q:" .. queue .. "-locks", "-inf", now, "LIMIT", 0, count)
  end
  for _, jid in ipairs(ready(now, queue, count - #found, is_older)) do
    found[#found + 1] = jid
  end
  return found
end

return popping
