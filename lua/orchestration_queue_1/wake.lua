--- Wake all workers of a queue, because it was resumed, or something else changed that concerns each of them.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @returns int 1
--- @error   the stream key does not end in `:stream`
--- @cost    O(1)

local wake = require("wake")

wake.all(queue)
return 1
