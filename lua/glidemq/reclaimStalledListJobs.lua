--- Take over stalled list jobs, which become ready, or fail if they stalled too often.
--- @queue   stream
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @arg   min_idle_ms          int?         silence forgiven when neither job nor worker name one
--- @arg   max_stalled_count    int =1       stalls forgiven per job
--- @arg   now_ms               int?         epoch ms
--- @arg   failed_key           text         ignored: the key of failed jobs, which follows from the stream's
--- @arg   lock_duration_ms     int =0       silence forgiven when the job names none; 0 means min_idle_ms
--- @returns int jobs taken back; 0 if an argument is not a number
--- @cost    O(A) for A active list jobs; a scan of the keys when another library activated some

local reclaim = require("reclaim")

if not min_idle_ms or not now_ms then
  return 0
end
return (reclaim.list_jobs(queue, {
  min_idle_ms = min_idle_ms,
  lock_duration_ms = lock_duration_ms,
  most_stalls = max_stalled_count,
  now_ms = now_ms,
}))
