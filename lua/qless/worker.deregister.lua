--- Have workers be listed no more.
--- @arg*    workers text their names
--- @returns nil
--- @cost    O(log N) per worker

redis.call("ZREM", "ql:workers", unpack(workers))
