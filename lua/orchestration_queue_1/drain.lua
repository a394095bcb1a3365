--- Remove some of the jobs that have not started.
---
--- As `glidemq_drain`, but bounded, so that no call blocks the server for long. Jobs that are left may start meanwhile.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @key   lifo                 list         ready jobs, newest first
--- @key   priority             list         ready jobs that run first
--- @arg   drain_delayed        flag         delayed and prioritized jobs, too
--- @arg   group                text         consumer group; what it holds is active and stays
--- @arg   limit                int          most jobs to remove; 0 removes none
--- @returns int jobs removed; 0 when no more are there
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per job, and O(1) per active job

local draining = require("draining")
local events = require("events")

if limit == 0 then
  return 0
end
local removed = draining.stream(queue, group, limit)
for _, key in ipairs({ lifo_key, priority_key }) do
  if removed < limit then
    removed = removed + draining.list(queue, key, limit - removed)
  end
end
if removed < limit then
  removed = removed + draining.shares(queue, limit - removed)
end
if drain_delayed and removed < limit then
  removed = removed + draining.scheduled(queue, limit - removed)
end
if removed > 0 then
  events.emit(queue, "drained", removed)
end
return removed
