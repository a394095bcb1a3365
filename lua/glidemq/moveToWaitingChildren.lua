--- Let an active job wait for its children; ready again at once when all have completed.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   group                text         consumer group of the entry
--- @arg   now_ms               int          epoch ms
--- @arg   broadcast            flag =0      leave the entry on the stream
--- @returns text `ok`, `completed` (all children have), `error:not_found` or `error:not_active`
--- @cost    O(1)

local active = require("active")
local events = require("events")
local flows = require("flows")

local job, problem = active.load(queue, job_id)
if not job then
  return problem
end
active.leave(queue, job_id, entry_id, group, broadcast)
active.pause_slot(queue, job, now_ms)
local children = redis.call("SCARD", queue .. "deps:" .. job_id)
if children > 0 and (tonumber(job.depsCompleted) or 0) >= children then
  flows.resume(queue, job_id, job.name)
  return "completed"
end
redis.call("HSET", job_key, "state", "waiting-children")
events.emit(queue, "waiting-children", job_id)
return "ok"
