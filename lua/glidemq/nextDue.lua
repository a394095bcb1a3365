--- Return when the next delayed job or rate-limited group is due.
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @returns int epoch ms, possibly past; -1 when nothing waits
--- @cost    O(log N) per priority in use

local promotion = require("promotion")

return promotion.next_due(scheduled_key, ratelimited_key)
