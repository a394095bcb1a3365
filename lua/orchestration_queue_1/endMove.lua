--- Drop a job that has arrived in another queue, or put back one that was refused there.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   priority             list         promoted prioritized jobs
--- @key   lifo                 list         LIFO jobs
--- @key   events               stream       lifecycle events
--- @key   tracked              zset         tracked jobs by when that began
--- @key   moving               zset         jobs on the move by when that began
--- @arg   job_id               text         the job
--- @arg   token                text         names the move
--- @arg   arrived              flag         drop it; else put it back
--- @returns int 1, or 0 when that move is over
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per tag

local moving = require("moving")

return moving.finish(queue, job_id, token, arrived)
