--- Delay a group.
--- @queue   ratelimited
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @key   events               stream       lifecycle events
--- @arg   group_key            text         the group
--- @arg   duration_ms          int          how long
--- @arg   now_ms               int          epoch ms
--- @arg   extend               text =max    `max` keeps a later end already set, `replace` does not
--- @returns int epoch ms at which the group resumes
--- @cost    O(log N)

local group_limit = require("group_limit")

return group_limit.group(queue, group_key, "", duration_ms, now_ms, extend)
