--- Remove a job in any state, and all its keys.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   completed            zset         completed jobs by time
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @key   log                  list         the job's log lines
--- @arg   job_id               text         the job
--- @returns int 1, or 0 when it does not exist
--- @cost    O(log N)

local events = require("events")
local removal = require("removal")

if not removal.remove(queue, job_id, "workers") then
  return 0
end
events.emit(queue, "removed", job_id)
return 1
