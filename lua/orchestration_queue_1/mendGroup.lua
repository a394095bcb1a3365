--- Correct the counts of a group of ordered jobs, if they are unchanged, and release its parked jobs.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   ratelimited          zset         groups that wait for their limits
--- @key   events               stream       lifecycle events
--- @key   failed               zset         failed jobs by time
--- @key   metrics_failed       hash         failures per minute
--- @arg   name                 text         the group
--- @arg   seen_active          int          jobs of it that it counted as active when the caller read it
--- @arg   seen_next_seq        int          whose turn it said it was
--- @arg   active               int          jobs that were active in truth
--- @arg   next_seq             int          whose turn it was in truth
--- @arg   now_ms               int          epoch ms
--- @returns int                             jobs that are ready now; -1 when the group has changed since
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per job that becomes ready, at most 1,000

local groups = require("groups")
local release = require("release")

-- The caller read these two numbers first, then every job of the queue. A job that starts or ends in between
-- changes one of them: each start moves the turn, and each end, or a start out of turn, the count.

local group = groups.load(queue, name)
if group.active ~= seen_active or group.next_seq ~= seen_next_seq then
  return -1
end
groups.write(queue, name, "active", active, "nextSeq", next_seq)
return release.promote(queue, name, groups.load(queue, name), now_ms)
