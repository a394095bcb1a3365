--- Make an active job wait for its children; it is ready again immediately if all have completed.
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
local deferral = require("deferral")

local job, problem = active.load(queue, job_id)
if not job then
  return problem
end
active.leave(queue, job_id, entry_id, group, broadcast)
return deferral.for_children(queue, job_id, job, now_ms) and "ok" or "completed"
