--- Put jobs back on their lists that were delivered to a worker in a lost reply.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   priority             list         ready jobs with a priority
--- @key   lifo                 list         ready last-in-first-out jobs
--- @key   list_active          string       how many active jobs came from a list
--- @arg   now_ms               int          epoch ms
--- @arg   consumer             text         the worker
--- @arg   known_count          int #known   how many follow
--- @each    known Known: a job that it knows of
--- @arg   job_id               text         the job
--- @end     known
--- @returns int how many it did not know of
--- @error   the stream key does not end in `:stream`
--- @cost    O(A) for A active list jobs, and O(log N) per job that goes back

local lists = require("lists")
local placement = require("placement")
local stalled = require("stalled")

-- Jobs of the stream are found among the consumer's pending entries. The record of a list job says which consumer
-- started it, if that start was the last. The job has not run, so this does not count as stalled.

local is_known = {}
for _, job in ipairs(known) do
  is_known[job.job_id] = true
end
local count = 0
for _, found in ipairs((lists.indexed(queue))) do
  local job_id, job = found.id, found.job
  local taker = redis.call("HGET", queue .. "job:" .. job_id, "takenBy")
  if not is_known[job_id] and taker == lists.taker(consumer, job.processedOn or "") then
    lists.leave(queue, job_id)
    stalled.reset(queue, job_id, job, now_ms)
    placement.ready(queue, job_id, job)
    count = count + 1
  end
end
return count
