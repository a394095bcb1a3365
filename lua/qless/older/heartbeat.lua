--- Extend the lock on a running job.
--- @arg  jid    name   its id
--- @arg  worker name   its worker
--- @arg  now    number the time in seconds
--- @arg  data   json?  its new data
--- @returns JSON: when the lock expires now; nil when it does not run for this worker
--- @cost    O(log N)

local older = require("older")

if not older.running(jid, worker) then
  return nil
end
run("heartbeat", now, { jid, worker })
local key = "ql:j:" .. jid
if data then
  redis.call("HSET", key, "data", data)
end
return redis.call("HGET", key, "expires")
