--- Store how far a job is, and emit it as an event.
--- @queue   events!
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   progress             json         how far it is
--- @returns int 1
--- @error   the events key does not end in `:events`
--- @cost    O(1)

local events = require("events")

redis.call("HSET", queue .. "job:" .. job_id, "progress", progress)
events.emit(queue, "progress", job_id, "data", progress)
return 1
