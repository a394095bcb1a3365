--- Promote jobs of groups whose rate limit has passed.
--- @queue   ratelimited
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @key   stream               stream       ready jobs
--- @arg   now_ms               int          epoch ms
--- @returns int jobs moved to the stream
--- @cost    O(log N) per moved job; at most 100 groups

local promotion = require("promotion")

return promotion.limited(queue, now_ms)
