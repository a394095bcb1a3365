--- Retry failed jobs, due immediately and with all attempts.
--- @queue   id
--- @key   failed               zset         failed jobs by time
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @key   id                   string       counter of automatic ids
--- @arg   count                int =0       most jobs to retry, oldest first; 0 for all
--- @arg   now_ms               int?         epoch ms
--- @returns int jobs retried
--- @error   invalid timestamp
--- @cost    O(log N) per job

local events = require("events")
local retry = require("retry")

if not now_ms then
  return redis.error_reply("invalid timestamp")
end
local retried = retry.failed(queue, count, now_ms)
if retried > 0 then
  events.emit(queue, "retried", retried)
end
return retried
