--- Mark the queue as running.
--- @queue   meta
--- @key   meta                 hash         settings of the queue
--- @key   events               stream       lifecycle events
--- @returns int 1
--- @cost    O(1)

local events = require("events")

redis.call("HSET", meta_key, "paused", 0)
events.emit(queue, "resumed", 0)
return 1
