--- Creates many jobs of one queue, each as glidemq_addJob does, with what they can share done once.

local creation = require("creation")
local events = require("events")
local ids = require("ids")

local bulk = {}

--- How many of the jobs need an automatic id; nil when one brings its own, for that may move the counter.
local function automatic(queue, jobs)
  local count = 0
  for _, job in ipairs(jobs) do
    if job.custom_id ~= "" then
      return nil
    elseif not creation.problem(queue, job) then
      count = count + 1
    end
  end
  return count
end

--- Where the parent keeps what it waits for, if it is of this queue; the caller tells one of another.
local function parent_deps_key(queue, job)
  local end_of_queue = "{" .. job.parent_queue .. "}:"
  return job.parent_id ~= "" and queue:sub(-#end_of_queue) == end_of_queue and queue .. "deps:" .. job.parent_id
end

local function add(queue, job, taken_id, skip_events)
  local job_id, exhausted = creation.job(queue, job, parent_deps_key(queue, job), taken_id)
  if job_id and not skip_events then
    events.emit(queue, "added", job_id, "name", job.job_name)
  end
  return job_id or exhausted
end

--- Create the jobs in order; returns for each what glidemq_addJob would reply.
function bulk.add(queue, jobs, skip_events)
  local count = automatic(queue, jobs) or 0
  local free = count > 0 and ids.take_many(queue, count) or {}
  local replies, used = {}, 0
  for index, job in ipairs(jobs) do
    replies[index] = creation.problem(queue, job)
    if not replies[index] then
      used = used + 1
      replies[index] = add(queue, job, free[used], skip_events)
    end
  end
  return replies
end

return bulk
