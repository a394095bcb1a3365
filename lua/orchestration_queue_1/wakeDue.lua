--- Wake one idle worker of a queue, if one is needed for jobs that became due, or ready in a list.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @key   priority             list         promoted prioritized jobs
--- @key   lifo                 list         LIFO jobs
--- @key   watch                zset         workers that watch for the next of these, by when they look
--- @key   wake_one             stream       signals to one idle worker each
--- @arg   now_ms               int          epoch ms
--- @returns int 1 if one was woken; 0 if no list holds a job, and a worker looks when the next one is due
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per priority in use

local promotion = require("promotion")
local wake = require("wake")

local due = promotion.next_due(scheduled_key, ratelimited_key, queue, now_ms)
if due >= 0 and wake.for_due(queue, watch_key, due, now_ms) then
  return 1
elseif wake.has_listed(queue) then
  wake.one(queue, "ready")
  return 1
end
return 0
