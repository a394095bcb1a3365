--- Remove a recurring job. The jobs that it made stay.
--- @arg     jid text its id
--- @returns 1, also without such a job
--- @cost    O(log N)

local queue = redis.call("HGET", "ql:r:" .. jid, "queue")
if queue then
  redis.call("ZREM", "ql:q:" .. queue .. "-recur", jid)
  redis.call("DEL", "ql:r:" .. jid)
end
return 1
