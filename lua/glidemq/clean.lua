--- Remove old finished jobs and all their keys.
--- @queue   id
--- @key   finished             zset         `completed` or `failed` jobs by time
--- @key   events               stream       lifecycle events
--- @key   id                   string       counter of automatic ids
--- @arg   cutoff_ms            int?         remove what finished at this epoch ms or before
--- @arg   limit                int =0       most jobs to remove; 0 removes none
--- @returns texts ids of the removed jobs, oldest first
--- @cost    O(log N + M) for M removed jobs

local purge = require("purge")

return purge.finished(queue, finished_key, cutoff_ms, limit)
