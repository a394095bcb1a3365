--- Make a delayed job ready now.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @returns text `ok`, `error:not_found` or `error:not_delayed`
--- @cost    O(log N)

local events = require("events")
local placement = require("placement")
local record = require("record")

local job = record.load(queue, job_id)
if not job then
  return "error:not_found"
elseif job.state ~= "delayed" then
  return "error:not_delayed"
end
redis.call("ZREM", scheduled_key, job_id)
redis.call("HSET", job_key, "state", "waiting", "delay", 0)
placement.ready(queue, job_id, job)
events.emit(queue, "promoted", job_id)
return "ok"
