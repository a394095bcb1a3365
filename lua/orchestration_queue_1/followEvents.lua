--- Keep the events that a reader has not read, until its lease ends.
--- @queue   events!
--- @flags   allow-oom
--- @key   events               stream       lifecycle events
--- @arg   reader               text         its name; not empty
--- @arg   after                text         the last event that it needs no more, or `$` for the newest
--- @arg   lease_ms             int          how long to keep them unless the reader calls again; at most a week
--- @returns text the event after which it reads
--- @error   the events key does not end in `:events`; or when the name is empty, the position is no event, or the lease is not from 1 ms to a week
--- @cost    O(R) for R readers

local readers = require("readers")
local validate = require("validate")

if reader == "" then
  validate.refuse("followEvents", "'reader' is empty")
elseif lease_ms < 1 or lease_ms > 7 * 86400000 then
  validate.refuse("followEvents", "'lease_ms' is not from 1 to a week")
end
if after == "$" then
  local newest = redis.call("XREVRANGE", events_key, "+", "-", "COUNT", 1)
  after = newest[1] and newest[1][1] or "0-0"
end
readers.follow(queue, reader, after, lease_ms)
return after
