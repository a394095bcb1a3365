--- Remove a repeatable job.
--- @key   repeats              zset         repeatable jobs by their next fire
--- @key   spec                 hash         the job's spec, and how often it fired
--- @arg   name                 text         its name among the repeatable jobs
--- @returns int 1, or 0 when there was none
--- @cost    O(log N)

local removed = redis.call("ZREM", repeats_key, name)
redis.call("DEL", spec_key)
return removed
