--- Write what a tick of the schedulers decided, if it still holds their lock: jobs, changed and removed entries.
--- @queue   id!
--- @key   lock                 string       the schedulers' lock
--- @key   schedulers           hash         entries by name
--- @key   schedulers_due       zset         when each is due for evaluation
--- @key   schedulers_looked    string       there while all of them need no look
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @arg   token                text         what the holder wrote into the lock
--- @arg   now_ms               int          epoch ms
--- @arg   looked_ms            int          all entries were evaluated, and the next full evaluation is due after this time; 0 if not
--- @arg   job_count            int #jobs    how many follow
--- @arg   run_count            int #runs    how many follow, one per job
--- @arg   update_count         int #updates how many follow
--- @arg   miss_count           int #misses  how many follow
--- @each    jobs NewJob: a job to create
--- @like    addJob.job
--- @end     jobs
--- @each    runs RunOrigin: what the job in the same place is made for
--- @arg   name                 text         the scheduler
--- @arg   due_ms               int          when the run was due
--- @arg   previous             text         the job of the run before; empty when that does not matter
--- @arg   overlap              text         what to do while that has not ended: `allow`, `skip`, `queue_one` or `replace`
--- @end     runs
--- @each    updates EntryUpdate: an entry to store
--- @arg   name                 text         the scheduler
--- @arg   entry                text         its entry; `drop` to drop it, empty to leave it
--- @arg   look_ms              int          when it is due for evaluation
--- @arg   held_entry           text =       likewise, if its run was held back; empty when it cannot be
--- @arg   held_look_ms         int =0       likewise
--- @end     updates
--- @each    misses MissedRun: a run that is left out
--- @arg   name                 text         the scheduler
--- @arg   due_ms               int          when it was due
--- @end     misses
--- @returns texts per job what `glidemq_addJob` replies, or `held`; or the one text `lost` when another holds the lock, and nothing was written
--- @error   the id key does not end in `:id`; `OQ_BAD_ARGUMENT` when there is not a run per job
--- @cost    O(log N) per job and entry; O(N) to revoke a waiting job

local bulk = require("bulk")
local schedulers = require("schedulers")
local validate = require("validate")

if #jobs ~= #runs then
  validate.refuse("fire", "there are " .. #jobs .. " jobs and " .. #runs .. " runs")
elseif redis.call("GET", lock_key) ~= token then
  return "lost"
end
local replies, held = {}, {}
for place, run in ipairs(runs) do
  local job = jobs[place]
  -- A run that was made already is not held back by itself.
  local exists = redis.call("EXISTS", queue .. "job:" .. job.custom_id) == 1
  if not exists and schedulers.holds_back(queue, run, now_ms) then
    replies[place], held[run.name] = "held", true
    schedulers.note(queue, run.name, run.due_ms, now_ms, "", run.overlap == "skip" and "overlap" or "queued")
  else
    replies[place] = bulk.add(queue, { job }, false)[1]
    if replies[place] == job.custom_id then
      schedulers.note(queue, run.name, run.due_ms, now_ms, job.custom_id, "fired")
    end
  end
end
for _, miss in ipairs(misses) do
  schedulers.note(queue, miss.name, miss.due_ms, now_ms, "", "missed")
end
for _, update in ipairs(updates) do
  if held[update.name] then
    schedulers.put(queue, update.name, update.held_entry, update.held_look_ms)
  else
    schedulers.put(queue, update.name, update.entry, update.look_ms)
  end
end
if looked_ms > 0 then
  redis.call("SET", schedulers_looked_key, 1, "PX", looked_ms)
end
return replies
