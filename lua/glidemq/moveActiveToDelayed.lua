--- Defer an active job until a given time, without counting an attempt.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   now_ms               int          epoch ms
--- @arg   delayed_until_ms     int =0       epoch ms; never before now
--- @arg   group                text =workers consumer group of the entry
--- @arg   new_data             text =       replaces its payload; empty keeps it
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
deferral.until_due(queue, job_id, job, delayed_until_ms, now_ms, new_data)
return "ok"
