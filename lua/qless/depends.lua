--- Have a job that waits for others wait for more or fewer.
--- @arg  jid    text its id
--- @arg  change text `on` or `off`
--- @arg* words  text ids of other jobs; after `off` also `all`
--- @returns 1
--- @error   the job does not wait for others
--- @cost    O(log N) per job

local calls = require("calls")
local dependencies = require("dependencies")
local jobs = require("jobs")
local places = require("places")

if change ~= "on" and change ~= "off" then
  calls.refuse("Depends", 'Argument "command" must be "on" or "off": ' .. change)
end
local job = jobs.read(jid)
if not job or job.state ~= "depends" then
  calls.refuse("Depends", "Job " .. jid .. " not in the depends state: " .. (job and job.state or "none"))
end
if change == "on" then
  dependencies.link(jid, words)
  return 1
end
local waits = "ql:j:" .. jid .. "-dependencies"
if words[1] == "all" then
  dependencies.unlink(jid)
end
for _, other in ipairs(words) do
  redis.call("SREM", "ql:j:" .. other .. "-dependents", jid)
  redis.call("SREM", waits, other)
end
if redis.call("SCARD", waits) == 0 then
  redis.call("ZREM", "ql:q:" .. job.queue .. "-depends", jid)
  places.work(job.queue, jid, job.priority, now)
  redis.call("HSET", "ql:j:" .. jid, "state", "waiting")
end
return 1
