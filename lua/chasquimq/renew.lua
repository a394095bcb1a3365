--- Renew the leases of running jobs that are still the caller's.
--- @key   stream               stream       ready and running jobs
--- @arg   group                text         the consumer group
--- @arg   consumer             text         the caller
--- @arg   entry_count          int #entry_ids how many follow
--- @arg*  entry_ids            text         the delivered entries
--- @flags allow-oom
--- @returns ints per entry 1, or 0 when it is no longer the caller's
--- @cost    O(log N) per entry

local renewed = {}
for index, entry_id in ipairs(entry_ids) do
  local pending = redis.call("XPENDING", stream_key, group, entry_id, entry_id, 1, consumer)
  renewed[index] = #pending
  if pending[1] then
    redis.call("XCLAIM", stream_key, group, consumer, 0, entry_id, "JUSTID")
  end
end
return renewed
