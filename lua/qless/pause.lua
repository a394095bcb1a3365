--- Stop queues from handing out jobs.
--- @arg*    queues text their names
--- @returns nil
--- @cost    O(1) per queue

redis.call("SADD", "ql:paused_queues", unpack(queues))
