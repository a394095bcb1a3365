--- Have queues be listed no more. Their jobs stay.
--- @arg*    queues text their names
--- @returns nil
--- @cost    O(log N) per queue

redis.call("ZREM", "ql:queues", unpack(queues))
