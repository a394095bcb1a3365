--- Write what a tick of the schedulers decided, if it still holds their lock: jobs, changed entries and dropped ones.
--- @queue   id!
--- @key   lock                 string       the schedulers' lock
--- @key   schedulers           hash         entries by name
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   token                text         what the holder wrote into the lock
--- @arg   job_count            int #jobs    how many follow
--- @arg   update_count         int #updates how many follow
--- @arg   drop_count           int #drops   how many follow
--- @each    jobs NewJob: a job to create
--- @like    addJob.job
--- @end     jobs
--- @each    updates EntryUpdate: an entry to store
--- @arg   name                 text         the scheduler
--- @arg   entry                json         its entry
--- @end     updates
--- @arg*  drops                text         schedulers whose entries are dropped
--- @returns texts per job what `glidemq_addJob` replies; or the one text `lost` when another holds the lock, and nothing was written
--- @error   the id key does not end in `:id`
--- @cost    O(log N) per job, O(1) per entry

local bulk = require("bulk")

if redis.call("GET", lock_key) ~= token then
  return "lost"
end
local replies = bulk.add(queue, jobs, false)
for _, update in ipairs(updates) do
  redis.call("HSET", schedulers_key, update.name, update.entry)
end
for _, name in ipairs(drops) do
  redis.call("HDEL", schedulers_key, name)
end
return replies
