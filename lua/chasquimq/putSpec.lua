--- Store a repeatable job.
--- @key   repeats              zset         repeatable jobs by their next fire
--- @key   spec                 hash         the job's spec, and how often it fired
--- @arg   next_ms              int          its next fire, epoch ms
--- @arg   name                 text         its name among the repeatable jobs
--- @arg   packed               bytes        its spec
--- @returns int 1
--- @cost    O(log N)

redis.call("ZADD", repeats_key, next_ms, name)
redis.call("HSET", spec_key, "spec", packed)
return 1
