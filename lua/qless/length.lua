--- Count the jobs of a queue that run, are ready or are scheduled.
--- @arg     queue text the queue
--- @returns how many
--- @cost    O(1)

local key = "ql:q:" .. queue
return redis.call("ZCARD", key .. "-locks") + redis.call("ZCARD", key .. "-work")
  + redis.call("ZCARD", key .. "-scheduled")
