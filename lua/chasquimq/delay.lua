--- Add a delayed job, unless its id is taken.
--- @key   marker               string       marks the job's id as taken
--- @key   delayed              zset         jobs that wait for their time
--- @key   index                string       the job's member of `delayed`
--- @arg   ttl_s                int          how long the id stays taken
--- @arg   run_at_ms            int          when it may run, epoch ms
--- @arg   member               bytes        the job, after its name
--- @returns int 1, or 0 when the id is taken
--- @cost    O(log N)

if redis.call("EXISTS", marker_key) == 1 then
  return 0
end
-- Commands that can fail come first: a marker without its job would refuse the job for an hour.
redis.call("ZADD", delayed_key, run_at_ms, member)
redis.call("SET", marker_key, "1", "EX", ttl_s)
redis.call("SET", index_key, member, "EX", ttl_s)
return 1
