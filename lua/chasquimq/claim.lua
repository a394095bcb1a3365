--- Take over jobs whose workers stopped renewing their leases.
--- @key   stream               stream       ready and running jobs
--- @arg   group                text         the consumer group
--- @arg   consumer             text         the caller
--- @arg   idle_ms              int          how long a lease lasts
--- @arg   most                 int          at most this many jobs
--- @flags allow-oom
--- @returns list per job its entry id, its fields, and how often it had been delivered
--- @cost    O(log N) per job

local claimed = {}
for _, pending in ipairs(redis.call("XPENDING", stream_key, group, "IDLE", idle_ms, "-", "+", most)) do
  local entry = redis.call("XCLAIM", stream_key, group, consumer, idle_ms, pending[1])[1]
  if entry then
    claimed[#claimed + 1] = { entry[1], entry[2], pending[4] }
  end
end
return claimed
