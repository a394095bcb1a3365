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
  if share then
    redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting")
    shares.enter(queue, job_id, share, 0)
    shares.feed(queue, 0)
  else
    stream.push(queue, job_id, name, "state", "waiting")
  end
  events.emit(queue, "active", job_id)
end

--- Notify a parent that the child `member` has completed. A parent that is gone stays gone. `decide(rule, missing)` is
--- called if that does not release it, but it has its own rule; `missing` is how many have not completed.
function flows.notify(queue, parent_id, member, decide)
  local key, mark = queue .. "job:" .. parent_id, "depdone:" .. member
  local parent = redis.call("HMGET", key, "state", "name", "triggerRule", "share", mark, "depsCompleted")
  if parent[5] or not parent[1] and redis.call("EXISTS", key) == 0 then
    return
  end
  local done = (numbers.whole(parent[6]) or 0) + 1
  redis.call("HSET", key, mark, "1", "depsCompleted", done)
  if parent[1] ~= "waiting-children" then
    return
  end
  local total = guarded.call("SCARD", queue .. "deps:" .. parent_id)
  if done >= total then
    flows.resume(queue, parent_id, parent[2], parent[4])
  elseif parent[3] and decide then
    decide(parent[3], total - done)
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
