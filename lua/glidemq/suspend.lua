--- Suspend an active job until it is signalled.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @key   suspended            zset         suspended jobs by deadline
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   group                text         consumer group of the entry
--- @arg   now_ms               int          epoch ms
--- @arg   reason               text =       why
--- @arg   timeout_ms           int =0       fail it when no signal came in this time; 0 waits forever
--- @arg   broadcast            flag =0      leave the entry on the stream
--- @returns text `ok`, `error:not_found` or `error:not_active`
--- @cost    O(log N)

local active = require("active")
local deferral = require("deferral")

local job, problem = active.load(queue, job_id)
if not job then
  return problem
end
active.leave(queue, job_id, entry_id, group, broadcast)
deferral.for_signal(queue, job_id, job, now_ms, reason, timeout_ms)
return "ok"
