--- Return a job that was taken too early to the end of the stream.
--- @queue   job
--- @key   stream               stream       ready jobs
--- @key   job                  hash         the job
--- @key   list_active          string       jobs active from a list
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   group                text         consumer group of the entry
--- @arg   broadcast            flag =0      leave the entry on the stream
--- @returns int 1, or 0 when the job is gone
--- @cost    O(1)

local active = require("active")
local record = require("record")
local stream = require("stream")

local job = record.load(queue, job_id)
active.leave(queue, job_id, entry_id, group, broadcast, not job)
if not job then
  return 0
end
redis.call("HSET", job_key, "state", "waiting")
stream.push(queue, job_id, job.name)
return 1
