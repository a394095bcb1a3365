--- Make jobs ready that wait for slots of pools, before all jobs of the same priority that came later.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @key   priority             list         promoted prioritized jobs
--- @arg   job_count            int #jobs    how many follow, at most 100
--- @each    jobs Parked: a job that waits for slots
--- @arg   job_id               text         the job
--- @end     jobs
--- @returns text a letter per job: `r` ready, `g` gone or ended, `a` still active, so that it has to be asked again soon, `l` it starts later, as the queue is paused or the job waits for something else
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for more than 100 jobs
--- @cost    O(log N) per job

local events = require("events")
local placement = require("placement")
local record = require("record")
local validate = require("validate")
local wake = require("wake")

-- A list and not the stream: there the job would be behind the whole backlog, while slots are kept for it.

local READY = { waiting = true, prioritized = true }

local function start(job_id)
  local job = record.load(queue, job_id)
  if not job or record.has_ended(job) then
    return "g"
  elseif job.state == "active" then
    return "a"
  elseif READY[job.state] then
    return "r"
  elseif job.state ~= "delayed" or redis.call("ZREM", scheduled_key, job_id) == 0 then
    return "l"
  end
  redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting", "delay", 0, "takenFrom", "list")
  placement.first(queue, job_id, job)
  events.emit(queue, "promoted", job_id)
  return "r"
end

if #jobs > 100 then
  validate.refuse("startParked", "at most 100 jobs are made ready in one call")
end
if redis.call("HGET", queue .. "meta", "paused") == "1" then
  return string.rep("l", #jobs)
end
local letters = {}
for index, job in ipairs(jobs) do
  letters[index] = start(job.job_id)
end
wake.one(queue, "ready")
return table.concat(letters)
