--- Make due jobs ready: expired ones fail, others go to the list or stream they belong to.
--- @queue   scheduled
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @arg   now_ms               int          epoch ms
--- @returns int members consumed, at most 1000; call again when it is 1000
--- @cost    O(log N) per member

local promotion = require("promotion")
local shares = require("shares")

local moved = promotion.due(queue, now_ms, 1000)
shares.mend(queue, true)
return moved
