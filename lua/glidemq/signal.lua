--- Send a suspended job a signal, and make it ready.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @key   suspended            zset         suspended jobs by deadline
--- @key   signals              list         signals the job received
--- @arg   job_id               text         the job
--- @arg   signal_name          text         what the signal is
--- @arg   signal_data          json =       its payload; empty for none
--- @arg   now_ms               int          epoch ms
--- @returns text `ok` or `not_suspended`
--- @cost    O(S + log N) for S signals so far

local events = require("events")
local stream = require("stream")

local job = redis.call("HMGET", job_key, "state", "name")
if job[1] ~= "suspended" then
  return "not_suspended"
end
redis.call("RPUSH", signals_key, cjson.encode({ name = signal_name, data = signal_data, receivedAt = now_ms }))
local all = "[" .. table.concat(redis.call("LRANGE", signals_key, 0, -1), ",") .. "]"
redis.call("HSET", job_key, "signals", all, "state", "waiting")
redis.call("ZREM", suspended_key, job_id)
stream.push(queue, job_id, job[2])
events.emit(queue, "resumed", job_id, "signal", signal_name)
return "ok"
