--- Record that jobs woken for slots of pools don't take them now, so that jobs behind them can.
--- @queue   slots!
--- @flags   allow-oom
--- @key   slots                hash         how many slots each pool has
--- @arg   now_ms               int          epoch ms
--- @arg   waiter_count         int #waiters how many follow, at most 100
--- @each    waiters Skipped: a job that waits for slots
--- @arg   token                text         the job, as in `oq1_acquirePools`
--- @arg   gone                 flag         it has ended or was removed; otherwise it keeps its place for later
--- @end     waiters
--- @returns array tokens of jobs to wake, for which there are slots now
--- @error   the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for more than 100 waiters
--- @cost    O(log N) per job, and as `oq1_releasePools`

local pools = require("pools")
local validate = require("validate")

if #waiters > 100 then
  validate.refuse("skipWaiters", "at most 100 waiting jobs are skipped in one call")
end
local self, names, seen = pools.open(queue, now_ms), {}, {}
for _, waiter in ipairs(waiters) do
  for _, name in ipairs(pools.skip(self, waiter.token, waiter.gone)) do
    if not seen[name] then
      seen[name], names[#names + 1] = true, name
    end
  end
end
return pools.wake(self, names)
