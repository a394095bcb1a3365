--- Keeps jobs of a graph from starting, and lets them go.

local dependencies = require("dependencies")
local propagation = require("propagation")

local holding = {}

--- Hold one job; returns whether it is held, which requires that it waits for others, and not for its own children.
function holding.hold(queue, job_id)
  local fields = redis.call("HMGET", queue .. "job:" .. job_id, "state", "processedOn")
  if fields[1] ~= "waiting-children" or fields[2] then
    return false
  end
  dependencies.hold(queue, job_id)
  return true
end

--- Decide about a waiting job by its dependencies. `is_open`: it needs the success of all, and none has ended.
function holding.go_on(outcomes, job_id, is_open)
  if dependencies.awaited(outcomes.queue, job_id) == 0 then
    propagation.start(outcomes, job_id)
  elseif not is_open then
    propagation.decide(outcomes, outcomes.queue, job_id)
  end
end

local function is_none(count)
  return not count or count == "0"
end

--- Release one job; it is passed over when it is not held.
function holding.release(outcomes, job_id)
  local queue = outcomes.queue
  local fields = redis.call(
    "HMGET", queue .. "job:" .. job_id,
    "state", "triggerRule", "depsCompleted", "depsFailed", "depsSkipped"
  )
  if fields[1] == "waiting-children" and dependencies.release(queue, job_id) then
    local is_open = not fields[2] and is_none(fields[3]) and is_none(fields[4]) and is_none(fields[5])
    holding.go_on(outcomes, job_id, is_open)
  end
end

return holding
