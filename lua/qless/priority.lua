--- Set a job's priority. A ready job goes to the front of those of the same priority.
--- @arg     jid      text   its id
--- @arg     priority number higher comes first
--- @returns the priority
--- @error   the job does not exist
--- @cost    O(log N)

local calls = require("calls")
local jobs = require("jobs")
local places = require("places")

local job = jobs.read(jid)
if not job then
  calls.refuse("Priority", "Job " .. jid .. " does not exist")
end
if job.queue and redis.call("ZSCORE", "ql:q:" .. job.queue .. "-work", jid) then
  places.work(job.queue, jid, priority, 0)
end
redis.call("HSET", "ql:j:" .. jid, "priority", priority)
return priority
