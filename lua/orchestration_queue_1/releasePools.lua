--- Release the slots of pools that one attempt of a job holds. Those of a later attempt stay.
--- @queue   slots!
--- @flags   allow-oom
--- @key   slots                hash         how many slots each pool has
--- @arg   now_ms               int          epoch ms
--- @arg   token                text         the job, as in `oq1_acquirePools`
--- @arg   taken_ms             int          its `processedOn` at that time
--- @arg   claim_count          int #claims  how many follow, at most 8
--- @each    claims Claim: slots of one pool
--- @arg   pool                 text         the pool
--- @arg   weight               int          how many slots of it, at least 1
--- @end     claims
--- @returns array tokens of jobs to wake, for which there are slots now
--- @error   the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for no claims, more than 8 or a weight below 1
--- @cost    O(H) for H holders of the pools, at most 1,000 each, and O(log N) per waiting job that it visits, at most 1,000

local pools = require("pools")
local validate = require("validate")

local _, names = validate.claims("releasePools", claims)
local self = pools.open(queue, now_ms)
pools.release(self, token, taken_ms, names)
return pools.wake(self, names)
