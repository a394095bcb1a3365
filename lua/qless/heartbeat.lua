--- Extend the lock on a running job.
--- @arg  jid    text its id
--- @arg  worker text its worker
--- @arg* words  text its new data, as JSON
--- @returns when the lock expires now
--- @error   it does not run, or not for this worker
--- @cost    O(log N)

local calls = require("calls")
local config = require("config")
local jobs = require("jobs")
local places = require("places")

local data = words[1] and calls.decoded("Heartbeat", "data", words[1])
local job = jobs.read_running("Heartbeat", jid, worker)
local expires = now + config.heartbeat(job.queue)
if data then
  redis.call("HSET", "ql:j:" .. jid, "data", cjson.encode(data))
end
redis.call("HSET", "ql:j:" .. jid, "expires", expires)
places.lock(job.queue, { jid }, worker, expires)
redis.call("ZADD", "ql:workers", now, worker)
return expires
