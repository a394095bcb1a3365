--- Add a job that can run at once, unless its id is taken.
--- @key   stream               stream       ready and running jobs
--- @key   marker               string       marks the job's id as taken
--- @arg   ttl_s                int          how long the id stays taken
--- @arg   max_length           int          about how many jobs the stream may hold
--- @arg   job_name             text         the job's name; may be empty
--- @arg   envelope             bytes        the job
--- @returns int 1, or 0 when the id is taken
--- @cost    O(1)

local jobs = require("jobs")

if not redis.call("SET", marker_key, "1", "NX", "EX", ttl_s) then
  return 0
end
jobs.publish(stream_key, max_length, job_name, envelope)
return 1
