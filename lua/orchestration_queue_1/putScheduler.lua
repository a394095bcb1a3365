--- Store or remove the entry of a repeatable job. The scheduler leader evaluates it next.
--- @queue   schedulers!
--- @key   schedulers           hash         entries by name
--- @key   schedulers_due       zset         when each is due for evaluation
--- @arg   name                 text         the scheduler
--- @arg   entry                text         its entry; `drop` to drop it
--- @arg   look_ms              int          when it is due for evaluation, epoch ms
--- @returns int 1, or 0 when there was none to drop
--- @error   the schedulers key does not end in `:schedulers`
--- @cost    O(log N)

local schedulers = require("schedulers")

return schedulers.put(queue, name, entry, look_ms)
