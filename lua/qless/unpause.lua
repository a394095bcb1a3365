--- Let queues hand out jobs again.
--- @arg*    queues text their names
--- @returns nil
--- @cost    O(1) per queue

redis.call("SREM", "ql:paused_queues", unpack(queues))
