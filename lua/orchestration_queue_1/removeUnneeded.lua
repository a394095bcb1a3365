--- Remove a job as `oq1_removeJob` does, unless it has not ended and other jobs wait for it.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   completed            zset         completed jobs by time
--- @key   failed               zset         failed jobs by time
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   group                text         consumer group of its entry
--- @returns int 1, or 0 when it does not exist, or -1 when it was left because others wait for it
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N); O(D) for D jobs that wait for it

local dependents = require("dependents")
local events = require("events")
local record = require("record")
local removal = require("removal")

-- Jobs that wait in other queues count by being named: their records may be on another server.
local function is_needed()
  local names = redis.call("HMGET", queue .. "job:" .. job_id, "parentId", "parentQueue")
  local found = false
  dependents.each(queue, job_id, { parentId = names[1], parentQueue = names[2] }, true, function(other_queue, other_id)
    if found or other_queue ~= queue then
      found = true
      return
    end
    local member = queue .. job_id
    local known = redis.call(
      "HMGET", queue .. "job:" .. other_id,
      "state", "depdone:" .. member, "depend:" .. member
    )
    found = known[1] == "waiting-children" and not known[2] and not known[3]
  end)
  return found
end

local job = record.load(queue, job_id)
if not job then
  return 0
elseif not record.has_ended(job) and is_needed() then
  return -1
end
removal.remove(queue, job_id, group)
events.emit(queue, "removed", job_id)
return 1
