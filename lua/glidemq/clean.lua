--- Remove old finished jobs and all they left.
--- @queue   id
--- @key   finished             zset         `completed` or `failed` jobs by time
--- @key   events               stream       lifecycle events
--- @key   id                   string       counter of automatic ids
--- @arg   cutoff_ms            int?         remove what finished at this epoch ms or before
--- @arg   limit                int =0       most jobs to remove; 0 removes none
--- @returns texts ids of the removed jobs, oldest first
--- @cost    O(log N + M) for M removed jobs

local events = require("events")
local purge = require("purge")

if limit <= 0 or not cutoff_ms then
  return {}
end
local cutoff = string.format("%.0f", cutoff_ms)
local job_ids = redis.call("ZRANGE", finished_key, "-inf", cutoff, "BYSCORE", "LIMIT", 0, limit)
if not job_ids[1] then
  return {}
end
purge.jobs(queue, job_ids)
purge.members(finished_key, job_ids)
events.emit(queue, "cleaned", #job_ids)
return job_ids
