--- Remove a job and all its keys, as `glidemq_removeJob` does, and its entry on the stream.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   completed            zset         completed jobs by time
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   group                text         consumer group of its entry; empty to leave the entry to the caller
--- @returns int 1, or 0 when it does not exist
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N)

local events = require("events")
local removal = require("removal")

if not removal.remove(queue, job_id, group) then
  return 0
end
events.emit(queue, "removed", job_id)
return 1
