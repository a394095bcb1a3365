--- Take slots of pools for one attempt of a job, all of them or none, in order of arrival.
--- @queue   slots!
--- @key   slots                hash         how many slots each pool has
--- @arg   now_ms               int          epoch ms
--- @arg   token                text         the job: what the keys of its queue begin with, and its id
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   lease_ms             int          how long it holds the slots without a renewal
--- @arg   claim_count          int #claims  how many follow, at most 8
--- @each    claims Claim: slots of one pool
--- @arg   pool                 text         the pool
--- @arg   weight               int          how many slots of it, at least 1
--- @end     claims
--- @returns array 1: `held`, `wait` (it is noted as waiting), `unknown` (a pool is not defined), or `late` (a later attempt holds them); 2: ms after which to ask again at the latest, or the unknown pool; 3: tokens of jobs to wake, for which there are slots now
--- @error   the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for no claims, more than 8, a weight below 1 or a lease of 0
--- @cost    O(H) for H holders of the pools, at most 1,000 each, and O(log N) per waiting job ahead of it while slots are free, at most 1,000

local pools = require("pools")
local validate = require("validate")

local weights, names = validate.claims("acquirePools", claims)
if lease_ms < 1 then
  validate.refuse("acquirePools", "a lease of 0 ms holds nothing")
end
local self = pools.open(queue, now_ms)
local verdict, detail = pools.acquire(self, token, taken_ms, lease_ms, weights)
return { verdict, detail, pools.wake(self, names) }
