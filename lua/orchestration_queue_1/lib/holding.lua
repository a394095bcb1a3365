--- Keeps jobs of a graph from starting, and lets them go.

local ledger = require("ledger")
local propagation = require("propagation")

local holding = {}

--- Let one job go on as what it waits for says; it is passed over when it is not held.
function holding.release(outcomes, job_id)
  local queue = outcomes.queue
  if redis.call("HGET", queue .. "job:" .. job_id, "state") ~= "waiting-children" then
    return
  end
  local waits = ledger.release(queue, job_id)
  if waits == 0 then
    propagation.start(outcomes, job_id)
  elseif waits then
    propagation.decide(outcomes, queue, job_id)
  end
end

return holding
