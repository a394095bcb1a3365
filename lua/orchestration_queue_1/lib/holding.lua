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

--- Decide about a waiting job by its dependencies.
function holding.go_on(outcomes, job_id)
  if dependencies.awaited(outcomes.queue, job_id) == 0 then
    propagation.start(outcomes, job_id)
  else
    propagation.decide(outcomes, outcomes.queue, job_id)
  end
end

--- Release one job; it is passed over when it is not held.
function holding.release(outcomes, job_id)
  local queue = outcomes.queue
  local waits = redis.call("HGET", queue .. "job:" .. job_id, "state") == "waiting-children"
  if waits and dependencies.release(queue, job_id) then
    holding.go_on(outcomes, job_id)
  end
end

return holding
