--- Wake the workers of a queue: a job was added that no stream entry announces, being delayed, prioritized or LIFO.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @returns int 1
--- @error   the stream key does not end in `:stream`
--- @cost    O(1)

local wake = require("wake")

wake.due(queue)
return 1
