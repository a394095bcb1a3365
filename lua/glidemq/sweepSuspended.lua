--- Fail suspended jobs whose deadline has passed.
--- @queue   key_prefix
--- @key   suspended            zset         suspended jobs by deadline
--- @key   events               stream       lifecycle events
--- @key   failed               zset         failed jobs by time
--- @key   metrics              hash         failures per minute
--- @arg   now_ms               int          epoch ms
--- @arg   key_prefix           text         what every key of the queue begins with, trailing colon included
--- @returns int jobs failed, at most 100 per call
--- @cost    O(log N) per job

local suspension = require("suspension")

return suspension.sweep(queue, now_ms)
