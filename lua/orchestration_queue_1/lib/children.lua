--- Adds children to a running job.

local bulk = require("bulk")
local dependents = require("dependents")
local propagation = require("propagation")
local rules = require("rules")
local validate = require("validate")

local children = {}

local ROOM = 100

function children.check(claim, jobs)
  for place, job in ipairs(jobs) do
    local id = job.custom_id
    if id == "" or id == claim.job_id or job.parent_id ~= "" then
      validate.refuse("addChildren", "child " .. place .. " needs an id of its own and no parent")
    end
  end
end

--- Make a job that was there a child: it may be one already, or be another's, and may have ended.
local function adopt(queue, claim, job_id, outcomes)
  redis.call("SADD", queue .. "deps:" .. claim.job_id, queue .. job_id)
  if redis.call("HGET", queue .. "job:" .. job_id, "parentId") ~= claim.job_id then
    redis.call("SADD", queue .. "parents:" .. job_id, queue .. claim.job_id)
  end
  propagation.ended(outcomes, job_id)
end

--- Add the jobs, once each; returns what glidemq_addJob would reply to each. With `until_ended`, the job waits for their
--- end, however that is.
function children.add(queue, claim, jobs, now, until_ended)
  if until_ended then
    redis.call("HSET", queue .. "job:" .. claim.job_id, "triggerRule", rules.CHILDREN_ENDED)
  end
  for _, job in ipairs(jobs) do
    job.parent_id, job.parent_queue = claim.job_id, dependents.queue_name(queue)
  end
  local replies = bulk.add(queue, jobs, false)
  local outcomes = propagation.new(queue, now, ROOM, true)
  for index, reply in ipairs(replies) do
    if reply == "duplicate" then
      adopt(queue, claim, jobs[index].custom_id, outcomes)
    end
  end
  propagation.finish(outcomes)
  return replies
end

return children
