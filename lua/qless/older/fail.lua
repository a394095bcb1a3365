--- Fail a job for good, in whatever state it is. The worker that runs it loses it, if that is another.
--- @arg  jid     name   its id
--- @arg  worker  name   who says so
--- @arg  group   name   the kind of failure
--- @arg  message text   what happened
--- @arg  now     number the time in seconds
--- @arg  data    json?  its new data
--- @returns the jid; nil when the job does not exist
--- @cost    O(log N), O(N) of the failures of its group when it had failed

local failures = require("failures")
local history = require("history")
local jobs = require("jobs")
local messages = require("messages")
local older = require("older")

local job = jobs.read(jid)
if not job then
  return nil
elseif job.state == "running" and job.worker == worker then
  older.see(now, worker)
elseif job.state == "running" then
  messages.lock_lost(jid, job.worker)
elseif job.state == "failed" then
  failures.remove(job.queue, jid, job.failure)
elseif job.state == "complete" then
  redis.call("ZREM", "ql:completed", jid)
  -- A completed job is in no queue: its failure counts in the last one.
  for _, entry in ipairs(history.read(jid)) do
    job.queue = entry.q or job.queue
  end
  redis.call("HSET", "ql:j:" .. jid, "queue", job.queue)
end
failures.fail(now, job, { group = group, message = message, worker = worker }, data)
return jid
