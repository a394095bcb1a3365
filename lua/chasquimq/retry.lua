--- Delay a failed job until its next attempt.
--- @key   stream               stream       ready and running jobs
--- @key   delayed              zset         jobs that wait for their time
--- @arg   group                text         the consumer group
--- @arg   entry_id             text         the delivered entry
--- @arg   backoff_ms           int          how long it waits, on the server's clock
--- @arg   member               bytes        the job after its failed attempt, after its name
--- @returns int 1, or 0 when another worker settled the job
--- @cost    O(log N)

local jobs = require("jobs")

if not jobs.take(stream_key, group, entry_id) then
  return 0
end
redis.call("ZADD", delayed_key, jobs.now_ms() + backoff_ms, member)
return 1
