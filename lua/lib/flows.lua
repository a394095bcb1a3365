--- Jobs that wait for others: counted on the waiting job, each child once.

local events = require("events")
local guarded = require("guarded")
local numbers = require("numbers")
local shares = require("shares")
local stream = require("stream")

local flows = {}

--- What every key of the parent's queue begins with.
function flows.queue_of(parent_job_key, parent_id)
  return parent_job_key:sub(1, -#parent_id - 5)
end

--- Make a waiting job, perhaps of a share, ready, all it waited for being done.
function flows.resume(queue, job_id, name, share)
  redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting")
  if share then
    shares.enter(queue, job_id, share, 0)
    shares.feed(queue, 0)
  else
    stream.push(queue, job_id, name)
  end
  events.emit(queue, "active", job_id)
end

--- Notify a parent that the child `member` has completed. A parent that is gone stays gone. `decide()` is called if
--- that does not release it, but it has its own rule.
function flows.notify(queue, parent_id, member, decide)
  local key = queue .. "job:" .. parent_id
  local parent = redis.call("HMGET", key, "state", "name", "triggerRule", "share")
  if not parent[1] and redis.call("EXISTS", key) == 0 then
    return
  end
  if redis.call("HSETNX", key, "depdone:" .. member, 1) == 0 then
    return
  end
  local done = numbers.count(key, "depsCompleted", 1)
  if parent[1] ~= "waiting-children" then
    return
  elseif done >= guarded.call("SCARD", queue .. "deps:" .. parent_id) then
    flows.resume(queue, parent_id, parent[2], parent[4])
  elseif parent[3] and decide then
    decide()
  end
end

--- Call `visit(parent_queue, parent_id)` for all further parents of a job.
function flows.each_registered(queue, job_id, visit)
  for _, parent in ipairs(guarded.call("SMEMBERS", queue .. "parents:" .. job_id)) do
    local parent_queue, parent_id = parent:match("^(.*:)([^:]*)$")
    if parent_queue then
      visit(parent_queue, parent_id)
    end
  end
end

--- Notify all further parents in the child's own queue; those elsewhere are on other slots.
function flows.notify_registered(queue, job_id)
  flows.each_registered(queue, job_id, function(parent_queue, parent_id)
    if parent_queue == queue then
      flows.notify(queue, parent_id, queue .. job_id)
    end
  end)
end

return flows
