--- Take running jobs from their workers.
--- @arg*    jids text their ids
--- @returns nil
--- @error   one of them does not run
--- @cost    O(log N) per job

local history = require("history")
local jobs = require("jobs")
local messages = require("messages")

local running = {}
for index, jid in ipairs(jids) do
  running[index] = jobs.read_running("Timeout", jid)
end
for _, job in ipairs(running) do
  history.add(job.jid, now, "timed-out")
  redis.call("ZREM", "ql:q:" .. job.queue .. "-locks", job.jid)
  redis.call("ZADD", "ql:q:" .. job.queue .. "-work", "+inf", job.jid)
  redis.call("HMSET", "ql:j:" .. job.jid, "state", "stalled", "expires", 0)
  messages.lock_lost(job.jid, job.worker)
end
