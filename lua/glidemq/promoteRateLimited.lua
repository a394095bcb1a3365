--- Let groups go on whose rate limit has passed.
--- @queue   ratelimited
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @key   stream               stream       ready jobs
--- @arg   now_ms               int          epoch ms
--- @returns int jobs moved to the stream
--- @cost    O(log N) per moved job; at most 100 groups

local groups = require("groups")
local release = require("release")

local most_groups = 100

local promoted = 0
local now_text = string.format("%.0f", now_ms)
for _, name in ipairs(redis.call("ZRANGE", ratelimited_key, 0, now_text, "BYSCORE", "LIMIT", 0, most_groups)) do
  redis.call("ZREM", ratelimited_key, name)
  promoted = promoted + release.promote(queue, name, groups.load(queue, name), now_ms)
end
return promoted
