--- Read the scheduler entries that are due for evaluation.
--- @queue   schedulers!
--- @key   schedulers           hash         entries by name
--- @key   schedulers_due       zset         when each is due for evaluation
--- @key   schedulers_looked    string       there while all of them need no look
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @arg   now_ms               int          epoch ms
--- @arg   limit                int          how many at most
--- @returns array 1: 1 if all entries need evaluation, since other clients may have changed them; 2: per entry its name, its text, the state of the job it waits for (`open`, `ended`, `gone`; empty for none), and when that ended
--- @error   the schedulers key does not end in `:schedulers`; `OQ_BAD_ARGUMENT` for a limit of 0
--- @cost    O(log N) per entry; for one that waits for a job it does not name, O(1) per unfinished job, at most 5,000

local schedulers = require("schedulers")
local validate = require("validate")

validate.check_limit("dueSchedulers", limit)
local found = {}
for _, name in ipairs(redis.call("ZRANGEBYSCORE", schedulers_due_key, "-inf", now_ms, "LIMIT", 0, limit)) do
  local entry = redis.call("HGET", schedulers_key, name)
  if entry then
    local fate, ended_ms = schedulers.awaited(queue, name, entry, now_ms)
    found[#found + 1] = { name, entry, fate, ended_ms }
  else
    redis.call("ZREM", schedulers_due_key, name)
  end
end
return { schedulers.needs_full_look(queue) and 1 or 0, found }
