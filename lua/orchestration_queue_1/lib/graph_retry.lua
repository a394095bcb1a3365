--- Lets failed jobs of a graph run again, and those that wait for them wait.

local dependencies = require("dependencies")
local dependents = require("dependents")
local holding = require("holding")
local propagation = require("propagation")
local record = require("record")
local rules = require("rules")
local stream = require("stream")

local graph_retry = {}

--- How a job ended that others of the queue wait for, `pending` while it has not; nil when it is not known here.
local function outcome_of(queue)
  return function(member)
    local there, job_id = dependents.read_member(queue, member)
    return there == queue and propagation.outcome_of(queue, job_id) or nil
  end
end

--- Make a failed job wait, with all its attempts; false when it has not failed.
local function reset(queue, job_id)
  local key = queue .. "job:" .. job_id
  if redis.call("HGET", key, "state") ~= "failed" then
    return false
  end
  redis.call("ZREM", queue .. "failed", job_id)
  stream.disown_left(queue, job_id)
  redis.call(
    "HSET", key,
    "state", "waiting-children", "attemptsMade", 0, "failedReason", "", "finishedOn", ""
  )
  redis.call("HDEL", key, "outcome", "stalledCount", "lastActive", "revoked", "failureKind", "traceback")
  return true
end

--- Make a job wait for `member` again: now, or when it waits for its children.
local function await(queue, job_id, member)
  local key = queue .. "job:" .. job_id
  local fields = redis.call("HMGET", key, "state", "processedOn")
  if not fields[1] or record.has_ended({ state = fields[1] }) then
    return
  elseif fields[2] and fields[1] == "waiting-children" then
    redis.call("HDEL", key, "processedOn")
    dependencies.recount(queue, job_id, outcome_of(queue))
  end
  dependencies.await(queue, job_id, member)
end

--- Have all that wait for a job wait for it again; those of other queues are left to the caller.
local function announce(queue, job_id, elsewhere)
  local fields = redis.call("HMGET", queue .. "job:" .. job_id, "parentId", "parentQueue")
  local job, member = { parentId = fields[1], parentQueue = fields[2] }, queue .. job_id
  dependents.each(queue, job_id, job, true, function(there, dependent_id)
    if there == queue then
      await(queue, dependent_id, member)
    else
      local size = #elsewhere
      elsewhere[size + 1], elsewhere[size + 2] = dependents.queue_name(there), dependent_id
      elsewhere[size + 3] = member
    end
  end)
end

--- Whether a job that ran may run again at once: all its dependencies have ended. A job that waits for the end of its
--- children finds out by counting them.
local function may_run(queue, job_id)
  local ran, rule = unpack(redis.call("HMGET", queue .. "job:" .. job_id, "processedOn", "triggerRule"))
  return ran and rule ~= rules.CHILDREN_ENDED and not dependencies.any_pending(queue, job_id, outcome_of(queue))
end

--- Recount a job's dependencies. The rule of a job that ran, and may again now, is not applied a second time.
local function recount(queue, job_id)
  if may_run(queue, job_id) then
    dependencies.close(queue, job_id)
    return
  end
  redis.call("HDEL", queue .. "job:" .. job_id, "processedOn")
  dependencies.recount(queue, job_id, outcome_of(queue))
end

--- Revive jobs; returns those that had failed, and the dependents in other queues that must wait for them again.
function graph_retry.all(outcomes, job_ids, news, held)
  local queue, revived, elsewhere = outcomes.queue, {}, {}
  for _, job_id in ipairs(job_ids) do
    if reset(queue, job_id) then
      revived[#revived + 1] = job_id
    end
  end
  for _, job_id in ipairs(revived) do
    recount(queue, job_id)
    if held then
      dependencies.hold(queue, job_id)
    end
    announce(queue, job_id, elsewhere)
  end
  for _, told in ipairs(news) do
    await(queue, told.dependent, told.member)
  end
  for _, job_id in ipairs(held and {} or revived) do
    holding.go_on(outcomes, job_id)
  end
  return revived, elsewhere
end

return graph_retry
