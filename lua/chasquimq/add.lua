--- Add a ready job, unless its id is taken.
--- @key   stream               stream       ready and running jobs
--- @key   marker               string       marks the job's id as taken
--- @arg   ttl_s                int          how long the id stays taken
--- @arg   max_length           int          about how many jobs the stream may hold
--- @arg   job_name             text         the job's name; may be empty
--- @arg   envelope             bytes        the job
--- @returns int 1, or 0 when the id is taken
--- @cost    O(1)

local jobs = require("jobs")

if redis.call("EXISTS", marker_key) == 1 then
  return 0
end
-- Commands that can fail come first: a marker without its job would refuse the job for an hour.
jobs.publish(stream_key, max_length, job_name, envelope)
redis.call("SET", marker_key, "1", "EX", ttl_s)
return 1
