--- Have a running job run again.
--- @arg  jid    text   its id
--- @arg  queue  text   where it waits
--- @arg  worker text   its worker
--- @arg  delay  number =0 seconds to wait
--- @arg* words  text   a failure group and a message
--- @returns how many retries it has left, -1 when it failed
--- @error   it does not run, or not for this worker
--- @cost    O(log N)

local failures = require("failures")
local jobs = require("jobs")
local places = require("places")

local key = "ql:j:" .. jid
local group, message = words[1], words[2]
local job = jobs.read_running("Retry", jid, worker)
local remaining = jobs.count_down(job)
redis.call("HDEL", key, "grace")
redis.call("ZREM", "ql:q:" .. job.queue .. "-locks", jid)
places.release(worker, jid)
local failure = message and { group = group, message = message, when = math.floor(now), worker = worker }
if remaining < 0 then
  failure = failure or failures.exhausted(now, queue, job.queue)
  failure.group = group or failure.group
  failures.exhaust(now, queue, job, failure)
  return -1
end
if delay > 0 then
  places.schedule(queue, jid, now + delay)
else
  places.work(queue, jid, job.priority, now)
end
-- With the queue where it waits: the lock of its next run is there, for heartbeat and complete to find.
redis.call("HSET", key, "state", delay > 0 and "scheduled" or "waiting", "queue", queue)
if message then
  redis.call("HSET", key, "failure", cjson.encode(failure))
end
return remaining
