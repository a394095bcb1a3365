--- Remove completed jobs from the stream.
--- @key   stream               stream       ready and running jobs
--- @arg   group                text         the consumer group
--- @arg   entry_count          int #entry_ids how many follow
--- @arg*  entry_ids            text         the delivered entries
--- @flags allow-oom
--- @returns int how many this call took
--- @cost    O(1) per entry

local taken = 0
for _, entry_id in ipairs(entry_ids) do
  taken = taken + redis.call("XACK", stream_key, group, entry_id)
  redis.call("XDEL", stream_key, entry_id)
end
return taken
