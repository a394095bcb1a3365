--- Remove a completed job from the stream and store its result. A full server keeps no result, but loses no completion.
--- @key   stream               stream       ready and running jobs
--- @key   result               string       what the handler returned
--- @arg   group                text         the consumer group
--- @arg   entry_id             text         the delivered entry
--- @arg   ttl_s                int          how long the result is kept
--- @arg   value                bytes        the result
--- @flags allow-oom
--- @returns int 1, or 0 when another worker settled the job
--- @cost    O(1)

local jobs = require("jobs")

if not jobs.take(stream_key, group, entry_id) then
  return 0
end
redis.pcall("SET", result_key, value, "EX", ttl_s)
return 1
