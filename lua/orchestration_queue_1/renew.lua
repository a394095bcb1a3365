--- Renew the leases of running jobs, each only for its holder.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @arg   now_ms               int          epoch ms
--- @arg   lease_count          int #leases  how many follow
--- @each    leases Held: a lease to renew
--- @arg   job_id               text         the job
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   stalled_count        int          its `stalledCount` at that time; 0 without one
--- @end     leases
--- @returns ints per lease 1 renewed, 2 renewed but the job is revoked, 0 lost: the job is gone, ended or leased to another worker
--- @error   the stream key does not end in `:stream`
--- @cost    O(1) per lease

local lease = require("lease")

local outcomes = {}
for index, held in ipairs(leases) do
  local job, same = lease.look(queue, held, lease.RENEWAL)
  if same and job.state == "active" then
    redis.call("HSET", queue .. "job:" .. held.job_id, "lastActive", now_ms)
    outcomes[index] = job.revoked == "1" and 2 or 1
  else
    outcomes[index] = 0
  end
end
return outcomes
