--- The jobs that wait for a job: the one its record names, and those registered with it.

local flows = require("flows")

local dependents = {}

--- What every key of another queue with our prefix begins with.
function dependents.sibling(queue, name)
  return queue:sub(1, queue:find("{", 1, true)) .. name .. "}:"
end

--- The queue and the id in a job's name among what others wait for; nil when it names no job that shares our prefix.
function dependents.read_member(queue, member)
  local name, job_id = member:match("{([^{}:]+)}:([^{}:]+)$")
  if name and member == dependents.sibling(queue, name) .. job_id then
    return dependents.sibling(queue, name), job_id
  end
  return nil
end

--- The name of the queue whose keys begin so.
function dependents.queue_name(queue)
  return queue:match("{(.*)}:$")
end

--- Call `visit(queue, job_id)` for each; `job` has the fields parentId and parentQueue. Registered ones are left out
--- when the caller knows that there are none.
function dependents.each(queue, job_id, job, registered, visit)
  if (job.parentId or "") ~= "" and (job.parentQueue or "") ~= "" then
    visit(dependents.sibling(queue, job.parentQueue), job.parentId)
  end
  if registered then
    flows.each_registered(queue, job_id, function(parent_queue, parent_id)
      -- Anything but a queue of ours is a name that other clients keep there.
      if parent_queue == dependents.sibling(queue, dependents.queue_name(parent_queue) or "") then
        visit(parent_queue, parent_id)
      end
    end)
  end
end

return dependents
