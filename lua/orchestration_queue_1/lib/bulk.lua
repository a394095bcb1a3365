--- Creates many jobs of one queue, each as glidemq_addJob does, doing once what they share.

local creation = require("creation")
local events = require("events")
local ids = require("ids")
local shares = require("shares")

local bulk = {}

local function same(job)
  return job
end

--- How many of the jobs need an automatic id; nil when one brings its own, for that may move the counter.
local function automatic(queue, items, whole)
  local count = 0
  for _, item in ipairs(items) do
    if item.custom_id ~= "" then
      return nil
    elseif not creation.problem(queue, whole(item)) then
      count = count + 1
    end
  end
  return count
end

--- The key of the parent's dependencies, if it is in this queue; the caller notifies a parent of another queue.
local function parent_deps_key(queue, job)
  if job.parent_id == "" then
    return nil
  end
  local end_of_queue = "{" .. job.parent_queue .. "}:"
  return queue:sub(-#end_of_queue) == end_of_queue and queue .. "deps:" .. job.parent_id
end

local function add(queue, job, taken_id, skip_events)
  local job_id, exhausted = creation.job(queue, job, parent_deps_key(queue, job), taken_id)
  if job_id and not skip_events then
    events.emit(queue, "added", job_id, "name", job.job_name)
  end
  return job_id or exhausted
end

--- Create jobs in order; returns for each what glidemq_addJob would reply. `whole` makes the job of an item, if the
--- items are not the jobs themselves; it may reuse the table of the job before.
function bulk.add(queue, items, skip_events, whole)
  whole = whole or same
  local count = automatic(queue, items, whole) or 0
  local free = count > 0 and ids.take_many(queue, count) or {}
  local replies, used, has_shares = {}, 0, false
  for index, item in ipairs(items) do
    local job = whole(item)
    job.is_of_many = true
    replies[index] = creation.problem(queue, job)
    if not replies[index] then
      used = used + 1
      replies[index] = add(queue, job, free[used], skip_events)
      has_shares = has_shares or job.share ~= nil
    end
  end
  if has_shares then
    shares.feed(queue, 0)
  end
  return replies
end

return bulk
