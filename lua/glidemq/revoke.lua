--- Withdraw a job: fail it if it has not started, else flag it.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group of its entry
--- @returns text `revoked`, `flagged` or `not_found`
--- @cost    O(N) for a job waiting on the stream or a list

local events = require("events")
local lists = require("lists")
local record = require("record")
local release = require("release")
local stream = require("stream")

local waits = { waiting = true, delayed = true, prioritized = true, ["group-waiting"] = true }

local job = record.load(queue, job_id)
if not job then
  return "not_found"
end
redis.call("HSET", job_key, "revoked", 1)
if not waits[job.state] then
  events.emit(queue, "revoked", job_id)
  return "flagged"
end
if job.state == "group-waiting" then
  redis.call("ZREM", queue .. "groupq:" .. job.groupKey, job_id)
else
  redis.call("ZREM", scheduled_key, job_id)
  stream.withdraw(queue, group, job_id)
  lists.remove(queue, job_id, job)
end
release.revoke(queue, job_id, job, now_ms)
return "revoked"
