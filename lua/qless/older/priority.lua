--- Set a job's priority. A ready job keeps its place among those that were put at other times.
--- @arg     jid      name   its id
--- @arg     priority number lower comes first
--- @returns the priority, as text when it has a fraction; nil when the job does not exist
--- @cost    O(log N)

local jobs = require("jobs")
local older = require("older")

local job = jobs.read(jid)
if not job then
  return nil
end
local stored = older.flip(priority)
local work = "ql:q:" .. (job.queue or "") .. "-work"
if redis.call("ZSCORE", work, jid) then
  redis.call("ZINCRBY", work, stored - (tonumber(job.priority) or 0), jid)
end
redis.call("HSET", "ql:j:" .. jid, "priority", stored)
return priority % 1 == 0 and priority or tostring(priority)
