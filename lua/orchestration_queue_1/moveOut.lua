--- Take a job that is not active out of its state, and hold it until another queue has it.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   priority             list         promoted prioritized jobs
--- @key   lifo                 list         LIFO jobs
--- @key   moving               zset         jobs on the move by when that began
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   target               text         the other queue's name
--- @arg   token                text         names the move; of a job on the move the first one counts
--- @arg   delay                text         milliseconds from its arrival until it is due; empty to keep its state
--- @arg   group                text         consumer group of its entry
--- @returns array 1: `ok`, or why not: `not_found`, `moving`, `state`, `in_flow`, `ordered`, `no_delay` or `not_found_there`; 2: the token, or what that is about; with `ok` 3: its state; 4: its time; 5: the delay; 6: name, value per field; 7: log lines; 8: signals; 9: who waits for it; 10: what it waited for; 11: the digest of 6 to 10; 12: the number of this reading
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for a malformed target or delay
--- @cost    O(log N + S) for a job of size S

local moving = require("moving")
local validate = require("validate")

validate.check_queue_name("moveOut", target)
if target == "" or not delay:find("^%d*$") then
  validate.refuse("moveOut", "there is no target, or a malformed delay")
end
return moving.out(queue, job_id, now_ms, target, token, delay, group)
