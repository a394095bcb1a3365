--- Place a job that is held at the end of a move, or remove it. Repeating it changes nothing more.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   priority             list         promoted prioritized jobs
--- @key   lifo                 list         LIFO jobs
--- @key   events               stream       lifecycle events
--- @key   metrics_failed       hash         failures per minute
--- @key   tracked              zset         tracked jobs by when that began
--- @key   moving               zset         jobs on the move by when that began
--- @arg   job_id               text         the job
--- @arg   token                text         names the move
--- @arg   kept                 flag         its source has dropped it; else it was removed there, and is here
--- @arg   now_ms               int          epoch ms
--- @returns int 1, or 0 when it is not held for that move
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per tag

local moving = require("moving")

return moving.land(queue, job_id, token, kept, now_ms)
