--- Remove every job that has not started.
--- @queue   id
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @key   id                   string       counter of automatic ids
--- @key   lifo                 list         ready jobs, newest first
--- @key   priority             list         ready jobs that run first
--- @arg   drain_delayed        flag =0      delayed and prioritized jobs, too
--- @arg   group                text =workers consumer group; what it holds is active and stays
--- @returns int jobs removed
--- @cost    O(N)

local draining = require("draining")
local events = require("events")

local removed = draining.stream(queue, group)
if drain_delayed then
  removed = removed + draining.scheduled(queue)
end
removed = removed + draining.list(queue, lifo_key) + draining.list(queue, priority_key) + draining.shares(queue)
if removed > 0 then
  events.emit(queue, "drained", removed)
end
return removed
