--- Promote due jobs, if the caller leads. Members that cannot be read become dead letters.
--- @key   delayed              zset         jobs that wait for their time
--- @key   stream               stream       ready and running jobs
--- @key   dead_letters         stream       the dead-letter queue
--- @key   lock                 string       names the leader
--- @arg   holder               text         the caller
--- @arg   ttl_s                int          how long the caller leads from now on
--- @arg   most                 int          at most this many jobs
--- @arg   max_length           int          about how many jobs the stream may hold
--- @arg   max_dead             int          about how many dead letters are kept
--- @returns list 0 or 1 for leading, jobs left in `delayed`, then the envelopes of the promoted jobs
--- @cost    O(most * log N)

local jobs = require("jobs")
local leader = require("leader")

if not leader.hold(lock_key, holder, ttl_s) then
  return { 0, 0 }
end
local reply = { 1, 0 }
for _, member in ipairs(redis.call("ZRANGEBYSCORE", delayed_key, "-inf", jobs.now_ms(), "LIMIT", 0, most)) do
  local name, envelope = jobs.split(member)
  if name then
    jobs.publish(stream_key, max_length, name, envelope)
    reply[#reply + 1] = envelope
  else
    local detail = "delayed member without a valid name length"
    jobs.bury(dead_letters_key, max_dead, { envelope = member, reason = "malformed", detail = detail })
  end
  redis.call("ZREM", delayed_key, member)
end
reply[2] = redis.call("ZCARD", delayed_key)
return reply
