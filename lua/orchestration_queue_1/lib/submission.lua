--- Writes a graph of jobs, as addFlow, addJob and registerParent do node by node.

local creation = require("creation")
local events = require("events")
local flows = require("flows")
local ids = require("ids")

local submission = {}

local function refuse(code, why)
  error({ err = code .. " oq1_submitGraph: " .. why })
end

--- Refuse what would leave a graph half written, or waiting for ever.
function submission.check(queue, nodes, edges)
  local seen = {}
  for place, job in ipairs(nodes) do
    local id = job.custom_id
    if id == "" or seen[id] or job.parent_id ~= "" then
      refuse("OQ_BAD_ARGUMENT", "node " .. place .. " needs an id of its own and no parent")
    elseif creation.problem(queue, job) == "ERR:COST_EXCEEDS_CAPACITY" then
      refuse("OQ_TOO_EXPENSIVE", "node " .. place .. " costs more than its token bucket holds")
    end
    seen[id] = true
  end
  for _, edge in ipairs(edges) do
    if edge.dependent < 1 or edge.dependency <= edge.dependent or edge.dependency > #nodes then
      local ends = edge.dependent .. " to " .. edge.dependency
      refuse("OQ_BAD_ARGUMENT", "an edge from " .. ends .. " leads to no later node")
    end
  end
end

--- Give every node its dependents and what it waits for.
local function link(nodes, edges)
  for _, job in ipairs(nodes) do
    job.dependents, job.dependencies = {}, {}
  end
  for _, edge in ipairs(edges) do
    local dependent, dependency = nodes[edge.dependent], nodes[edge.dependency]
    dependent.dependencies[#dependent.dependencies + 1] = dependency
    dependency.dependents[#dependency.dependents + 1] = dependent
  end
end

--- Note the dependents where completions look for them: the only one of a ready job in its record, else in a set.
local function register(queue, job)
  local queue_name, parent_ids, parent_queues = queue:match("{(.*)}:$"), {}, {}
  for index, dependent in ipairs(job.dependents) do
    redis.call("SADD", queue .. "parents:" .. job.custom_id, queue .. dependent.custom_id)
    parent_ids[index], parent_queues[index] = dependent.custom_id, queue_name
  end
  redis.call(
    "HSET", queue .. "job:" .. job.custom_id,
    "parentIds", cjson.encode(parent_ids), "parentQueues", cjson.encode(parent_queues)
  )
end

local function create(queue, job)
  local waits, dependents = #job.dependencies > 0, job.dependents
  local in_record = not waits and #dependents == 1
  if in_record then
    job.parent_id, job.parent_queue = dependents[1].custom_id, queue:match("{(.*)}:$")
  end
  job.keeps_limits = waits
  ids.take(queue, job.custom_id)
  creation.write(queue, job.custom_id, job, waits and "waiting-children" or nil)
  for _, dependency in ipairs(job.dependencies) do
    redis.call("SADD", queue .. "deps:" .. job.custom_id, queue .. dependency.custom_id)
  end
  events.emit(queue, "added", job.custom_id, "name", job.job_name)
  if dependents[1] and not in_record then
    register(queue, job)
  end
end

--- Write what is not there yet; returns each node's id, or `duplicate`. What is there and completed is told on.
function submission.write(queue, nodes, edges)
  link(nodes, edges)
  local replies = {}
  for place, job in ipairs(nodes) do
    if not ids.exists(queue, job.custom_id) then
      create(queue, job)
      replies[place] = job.custom_id
    else
      replies[place] = "duplicate"
      if redis.call("HGET", queue .. "job:" .. job.custom_id, "state") == "completed" then
        for _, dependent in ipairs(job.dependents) do
          flows.notify(queue, dependent.custom_id, queue .. job.custom_id)
        end
      end
    end
  end
  return replies
end

return submission
