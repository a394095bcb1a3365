--- Add events to the queue's event stream.
--- @key   events               stream       what happened
--- @arg   max_length           int          about how many events are kept
--- @arg   packed               bytes        the events as MessagePack: a list of each one's fields and values
--- @returns int how many were added
--- @cost    O(1) per event

local events = cmsgpack.unpack(packed)
for _, event in ipairs(events) do
  redis.call("XADD", events_key, "MAXLEN", "~", max_length, "*", unpack(event))
end
return #events
