--- Remove a job and all it left, wherever it is.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ignored: an entry left behind is dropped when it is met
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   completed            zset         completed jobs by time
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   log                  list         the job's log lines
--- @arg   job_id               text         the job
--- @returns int 1, or 0 when it does not exist
--- @cost    O(log N); O(N) for a job waiting on a list

local events = require("events")
local lists = require("lists")
local purge = require("purge")
local record = require("record")
local release = require("release")

local job = record.load(queue, job_id)
if not job then
  return 0
end
if job.state == "active" and lists.holds(job) then
  lists.leave(queue, job_id)
elseif job.state == "waiting" then
  lists.remove(queue, job_id, job)
elseif job.state == "group-waiting" then
  redis.call("ZREM", queue .. "groupq:" .. (job.groupKey or ""), job_id)
end
for _, key in ipairs({ scheduled_key, completed_key, failed_key, queue .. "suspended" }) do
  redis.call("ZREM", key, job_id)
end
release.forfeit(queue, job, 0)
purge.jobs(queue, { job_id })
events.emit(queue, "removed", job_id)
return 1
