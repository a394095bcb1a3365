--- Renew the leases that running jobs have on slots of pools, and restore those that were lost.
--- @queue   slots!
--- @flags   allow-oom
--- @key   slots                hash         how many slots each pool has
--- @arg   now_ms               int          epoch ms
--- @arg   lease_count          int #leases  how many follow, at most 100
--- @each    leases PoolLease: slots of one pool that an attempt holds
--- @arg   token                text         the job, as in `oq1_acquirePools`
--- @arg   taken_ms             int          its `processedOn` at that time
--- @arg   lease_ms             int          how long it holds them from now on
--- @arg   pool                 text         the pool
--- @arg   weight               int          how many slots of it, at least 1
--- @end     leases
--- @returns ints per lease 1 renewed or restored, 0 not: a later attempt holds them, or the pool is not defined
--- @error   the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for more than 100 leases, a weight below 1 or a lease of 0
--- @cost    O(H) per lease for H holders of its pool, at most 1,000

local pools = require("pools")
local validate = require("validate")

if #leases > 100 then
  validate.refuse("renewPools", "at most 100 leases are renewed in one call")
end
for _, lease in ipairs(leases) do
  if lease.weight < 1 or lease.lease_ms < 1 then
    validate.refuse("renewPools", "a weight and a lease must be at least 1")
  end
end
local self, outcomes = pools.open(queue, now_ms), {}
for index, lease in ipairs(leases) do
  local renewed = pools.renew(self, lease.token, lease.taken_ms, lease.lease_ms, lease.pool, lease.weight)
  outcomes[index] = renewed and 1 or 0
end
return outcomes
