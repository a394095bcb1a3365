--- Remove jobs that are still in a set of finished ones, and all their keys; also on a full server.
--- @queue   id!
--- @flags   allow-oom
--- @key   finished             zset         `completed` or `failed` jobs by time
--- @key   events               stream       lifecycle events
--- @key   id                   string       counter of automatic ids
--- @arg   job_count            int #job_ids how many follow
--- @arg*  job_ids              text         jobs
--- @returns texts ids of the removed jobs, in the order asked for
--- @error   the id key does not end in `:id`
--- @cost    O(log N) per job

local events = require("events")
local purge = require("purge")

local removed = {}
for _, job_id in ipairs(job_ids) do
  if redis.call("ZREM", finished_key, job_id) == 1 then
    removed[#removed + 1] = job_id
  end
end
if removed[1] then
  purge.jobs(queue, removed)
  events.emit(queue, "cleaned", #removed)
end
return removed
