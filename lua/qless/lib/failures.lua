-- Failed jobs, by the group of their failure.
local history = require("history")
local messages = require("messages")
local places = require("places")
local stats = require("stats")

local failures = {}

--- Add a job to the jobs of a group.
function failures.add(now, queue, jid, group)
  redis.call("SADD", "ql:failures", group)
  redis.call("LPUSH", "ql:f:" .. group, jid)
  stats.count(now, queue, "failures", 1)
  stats.count(now, queue, "failed", 1)
end

--- Have a group be forgotten that has no jobs.
function failures.tidy(group)
  if redis.call("LLEN", "ql:f:" .. group) == 0 then
    redis.call("SREM", "ql:failures", group)
  end
end

--- Take a failed job out of its group; `encoded` is its field, and `queue` the one whose statistics it leaves.
function failures.remove(queue, jid, encoded)
  local failure = cjson.decode(encoded or "{}")
  if failure.group then
    redis.call("LREM", "ql:f:" .. failure.group, 0, jid)
    failures.tidy(failure.group)
    stats.count(failure.when, queue, "failed", -1)
  end
end

--- Return the failure of a job that used up its retries. After a `retry` into another queue, the two queues differ.
function failures.exhausted(now, group_queue, queue)
  return {
    group = "failed-retries-" .. group_queue,
    message = 'Job exhausted retries in queue "' .. queue .. '"',
    when = now,
    worker = "",
  }
end

--- Fail a job for good, in whatever state it is. `data` is its new data as JSON, nil to keep the old.
function failures.fail(now, job, failure, data)
  local jid, worker, group = job.jid, failure.worker, failure.group
  failure.when = math.floor(now)
  messages.log("failed", { jid = jid, worker = worker, group = group, message = failure.message })
  messages.tracked("failed", jid)
  places.release(job.worker, jid)
  history.add(jid, now, "failed", { worker = worker, group = group })
  places.leave(job.queue, jid)
  if data then
    redis.call("HSET", "ql:j:" .. jid, "data", data)
  end
  redis.call(
    "HMSET", "ql:j:" .. jid,
    "state", "failed", "worker", "", "expires", "", "failure", cjson.encode(failure)
  )
  failures.add(now, job.queue, jid, group)
end

--- Fail a job that used up its retries.
function failures.exhaust(now, queue, job, failure)
  places.leave(queue, job.jid)
  history.add(job.jid, now, "failed", { group = failure.group })
  redis.call(
    "HMSET", "ql:j:" .. job.jid,
    "state", "failed", "worker", "", "expires", "", "failure", cjson.encode(failure)
  )
  failures.add(now, queue, job.jid, failure.group)
  messages.tracked("failed", job.jid)
end

return failures
