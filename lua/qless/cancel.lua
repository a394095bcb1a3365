--- Remove jobs, or none when another job depends on one of them. Completed jobs stay.
--- @arg*    jids text their ids
--- @returns the ids as given
--- @error   a job that is not named depends on one of them
--- @cost    O(log N) per job

local calls = require("calls")
local dependencies = require("dependencies")
local failures = require("failures")
local jobs = require("jobs")
local messages = require("messages")
local places = require("places")
local tags = require("tags")

local named = {}
for _, jid in ipairs(jids) do
  named[jid] = true
end
for _, jid in ipairs(jids) do
  for _, dependent in ipairs(redis.call("SMEMBERS", "ql:j:" .. jid .. "-dependents")) do
    if not named[dependent] then
      calls.refuse("Cancel", jid .. " is a dependency of " .. dependent .. " but is not mentioned to be canceled")
    end
  end
end
for _, jid in ipairs(jids) do
  local job = jobs.read(jid) or {}
  if job.state ~= "complete" then
    local worker = job.worker or false
    local message = { jid = jid, worker = worker, event = "canceled", queue = job.queue or false }
    messages.log("canceled", message)
    if worker and worker ~= "" then
      places.release(worker, jid)
      redis.call("PUBLISH", "ql:w:" .. worker, cjson.encode(message))
    end
    if job.queue then
      places.leave(job.queue, jid)
    end
    dependencies.unlink(jid)
    if job.state == "failed" then
      failures.remove(job.queue, jid, job.failure)
    end
    tags.clear(jid, job.tags)
    messages.tracked("canceled", jid)
    redis.call("DEL", "ql:j:" .. jid, "ql:j:" .. jid .. "-history")
  end
end
return jids
