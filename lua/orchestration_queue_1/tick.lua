--- Promote due jobs of a queue, resume those whose wait for a signal is over, and return what its workers read periodically.
--- @queue   scheduled!
--- @flags   allow-oom
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @key   meta                 hash         settings of the queue
--- @key   schedulers           hash         entries of repeatable jobs by name
--- @key   schedulers_due       zset         when each of these is due for evaluation
--- @key   schedulers_looked    string       there while all of these need no look
--- @arg   now_ms               int          epoch ms
--- @arg   heal                 flag         also correct the count of active list jobs
--- @returns ints jobs made ready, epoch ms of the next one due or -1, repeatable jobs, 1 if paused, rate limit or 0, its window in ms, the server's own time in epoch ms, epoch ms at which repeatable jobs are due for evaluation or -1
--- @error   the scheduled key does not end in `:scheduled`
--- @cost    O(log N) per job made ready and per priority in use; at most 100 jobs, 100 groups and 100 waits for a signal; what remains due is the next one due

local lists = require("lists")
local promotion = require("promotion")
local propagation = require("propagation")
local schedulers = require("schedulers")
local shares = require("shares")
local waits = require("waits")
local wake = require("wake")

local outcomes = propagation.new(queue, now_ms, 100) -- jobs may expire, and others wait for them
local moved = promotion.due(queue, now_ms, 100, true) + promotion.limited(queue, now_ms, 100)
moved = moved + waits.resume(queue, now_ms)
propagation.finish(outcomes)
shares.mend(queue)
if heal then
  lists.heal(queue)
end
wake.for_lists(queue)
local time = redis.call("TIME")
local settings = redis.call("HMGET", meta_key, "paused", "rateLimitMax", "rateLimitDuration")
return {
  moved,
  waits.next_due(queue, promotion.next_due(scheduled_key, ratelimited_key, queue, now_ms)),
  redis.call("HLEN", schedulers_key),
  settings[1] == "1" and 1 or 0,
  tonumber(settings[2]) or 0,
  tonumber(settings[3]) or 0,
  time[1] * 1000 + math.floor(time[2] / 1000),
  schedulers.next_look(queue),
}
