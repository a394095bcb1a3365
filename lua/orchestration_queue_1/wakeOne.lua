--- Wake one idle worker of a queue: a job was added to a list, which no stream entry announces.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @returns int 1
--- @error   the stream key does not end in `:stream`
--- @cost    O(1)

local wake = require("wake")

wake.one(queue, "ready")
return 1
