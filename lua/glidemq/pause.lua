--- Mark the queue as paused.
--- @queue   meta
--- @key   meta                 hash         settings of the queue
--- @key   events               stream       lifecycle events
--- @returns int 1
--- @cost    O(1)

local events = require("events")

redis.call("HSET", meta_key, "paused", 1)
events.emit(queue, "paused", 0)
return 1
