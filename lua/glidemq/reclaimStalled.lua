--- Take over stalled stream jobs, which become ready, or fail if they stalled too often.
--- @queue   stream
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @arg   group                text         consumer group
--- @arg   consumer             text         who looks
--- @arg   min_idle_ms          int          entries idle for less are left alone
--- @arg   max_stalled_count    int =1       stalls forgiven per job
--- @arg   now_ms               int          epoch ms
--- @arg   failed_key           text         ignored: the key of failed jobs, which follows from the stream's
--- @arg   broadcast            flag =0      leave entries on the stream
--- @arg   lock_duration_ms     int =0       silence forgiven when the job names none; 0 means min_idle_ms
--- @returns int entries inspected
--- @cost    O(P) for P idle entries, at most 10000

local reclaim = require("reclaim")

return (reclaim.entries(queue, consumer, {
  group = group,
  min_idle_ms = min_idle_ms,
  lock_duration_ms = lock_duration_ms,
  most_stalls = max_stalled_count,
  now_ms = now_ms,
  broadcast = broadcast,
}))
