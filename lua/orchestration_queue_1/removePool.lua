--- Remove a pool that no job holds or waits for.
--- @queue   slots!
--- @flags   allow-oom
--- @key   slots                hash         how many slots each pool has
--- @arg   now_ms               int          epoch ms
--- @arg   pool                 text         the pool
--- @returns text `removed`, `not_found`, or `in_use`
--- @error   the slots key does not end in `:slots`
--- @cost    O(H) for H holders, at most 1,000

local pools = require("pools")

local self = pools.open(queue, now_ms)
if not pools.slots(self, pool) then
  return "not_found"
elseif pools.is_used(self, pool) then
  return "in_use"
end
redis.call("HDEL", slots_key, pool)
return "removed"
