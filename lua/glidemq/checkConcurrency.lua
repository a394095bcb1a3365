--- Return how many more jobs the queue's concurrency limit allows.
--- @queue   meta
--- @key   meta                 hash         settings of the queue
--- @key   stream               stream       ready jobs
--- @key   list_active          string       jobs active from a list
--- @arg   group                text         consumer group
--- @returns int -1 without a limit, else at least 0
--- @cost    O(1)

local concurrency = require("concurrency")

return concurrency.room(meta_key, stream_key, queue, group) or -1
