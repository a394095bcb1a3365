--- Drop a job that another queue holds, or put back one that was refused there.
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
--- @arg   arrived              flag         drop it; else put it back
--- @arg   digest               text         of what the other queue holds
--- @arg   now_ms               int          epoch ms
--- @returns text `dropped`; `changed` when it is not what the digest says, and has to be carried again; `removed` when it was removed meanwhile, or that was a week ago; `put_back`; or `over` when that move had ended
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per tag, and O(S) for a job of size S

local moving = require("moving")

return moving.finish(queue, job_id, token, arrived, digest, now_ms)
