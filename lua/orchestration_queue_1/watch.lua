--- Return when a worker must next promote due jobs. Two workers watch for that; the others tick at their usual time.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   ratelimited          zset         groups that wait for their rate limit
--- @key   schedulers           hash         entries of repeatable jobs by name
--- @key   schedulers_due       zset         when each of these is due for evaluation
--- @key   schedulers_looked    string       there while all of these need no look
--- @key   watch                zset         workers that watch for the next job, by when they look
--- @key   watch_schedulers     zset         workers that watch for the next repeatable job, likewise
--- @key   wake_one             stream       signals to one idle worker each
--- @arg   now_ms               int          epoch ms
--- @arg   consumer             text         the worker
--- @arg   until_ms             int          epoch ms of its usual time; 0 when it leaves
--- @arg   fires                flag         it evaluates repeatable jobs
--- @returns int epoch ms at which it must tick; -1 for its usual time
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N) per priority in use

local promotion = require("promotion")
local schedulers = require("schedulers")
local waits = require("waits")
local wake = require("wake")

local at = -1
local function watch(key, due)
  if due >= 0 and due <= until_ms then
    if wake.watch(queue, key, consumer, due, now_ms) and (at < 0 or due < at) then
      at = due
    end
  elseif wake.ignore(key, consumer) and until_ms == 0 then
    wake.one(queue, "due") -- the other one that watches may be dead
  end
end

watch(watch_key, waits.next_due(queue, promotion.next_due(scheduled_key, ratelimited_key, queue, now_ms)))
if fires then
  -- What is due already this worker is about to evaluate, unless another holds the lock; it knows when to come again.
  local look = schedulers.next_look(queue)
  watch(watch_schedulers_key, look > now_ms and look or -1)
end
return at
