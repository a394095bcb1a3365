--- Take ready jobs from one list, as many as the queue's concurrency limit allows, and count them as active.
--- @queue   meta
--- @key   meta                 hash         settings of the queue
--- @key   stream               stream       ready jobs
--- @key   list_active          string       jobs active from a list
--- @key   list                 list         `priority` or `lifo`
--- @arg   group                text         consumer group
--- @arg   count                int =1       most jobs to take
--- @returns texts job ids, possibly none
--- @cost    O(count)

local concurrency = require("concurrency")
local lists = require("lists")

local room = concurrency.room(meta_key, stream_key, queue, group)
local most = math.min(count, room or count)
if most <= 0 then
  return {}
end
local job_ids = redis.call("RPOP", list_key, most) or {}
if job_ids[1] then
  redis.call("INCRBY", list_active_key, #job_ids)
end
return lists.taken(queue, job_ids)
