--- Find jobs of one state by their name.
--- @queue   key_prefix
--- @key   jobs                 zset         or stream of the state to search
--- @arg   state_type           text         `zset` or `stream`
--- @arg   name                 text         the exact name
--- @arg   limit                int =100     most ids to return
--- @arg   key_prefix           text         what every key of the queue begins with, trailing colon included
--- @returns texts job ids
--- @cost    O(N) until the limit is reached

local search = require("search")

return search.by_name(queue, jobs_key, state_type, name, limit)
