--- Store or remove the entry of a repeatable job, if it is still what the caller read and no lock is held.
--- @queue   schedulers!
--- @key   lock                 string       the schedulers' lock
--- @key   schedulers           hash         entries by name
--- @key   schedulers_due       zset         when each is due for evaluation
--- @arg   name                 text         the scheduler
--- @arg   read                 text         its entry as it was read; empty when there was none
--- @arg   entry                text         its new entry; `drop` to drop it
--- @arg   look_ms              int          when it is due for evaluation, epoch ms
--- @returns text `ok`, or, with nothing written, `locked` or `changed`
--- @error   the schedulers key does not end in `:schedulers`
--- @cost    O(log N)

local schedulers = require("schedulers")

if redis.call("EXISTS", lock_key) == 1 then
  return "locked"
elseif (redis.call("HGET", schedulers_key, name) or "") ~= read then
  return "changed"
end
schedulers.put(queue, name, entry, look_ms)
return "ok"
