--- Define a pool, or change how many slots it has. Jobs that hold slots beyond the new number keep them until they end.
--- @queue   slots!
--- @key   slots                hash         how many slots each pool has
--- @arg   now_ms               int          epoch ms
--- @arg   pool                 text         the pool
--- @arg   count                int          how many slots, 0 to 1,000; 0 starts no more jobs
--- @returns array tokens of jobs to wake, for which there are slots now
--- @error   the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for an empty name, one with `{`, `}` or `:`, or more than 1,000 slots
--- @cost    as `oq1_releasePools`

local pools = require("pools")
local validate = require("validate")

if pool == "" or pool:find("[{}:]") then
  validate.refuse("setPool", "'" .. pool .. "' is not the name of a pool")
elseif count < 0 or count > 1000 then
  validate.refuse("setPool", "a pool has 0 to 1000 slots")
end
redis.call("HSET", slots_key, pool, string.format("%.0f", count))
return pools.wake(pools.open(queue, now_ms), { pool })
