--- Writes a graph of jobs, as addFlow, addJob and registerParent do node by node.

local chunks = require("chunks")
local creation = require("creation")
local dependencies = require("dependencies")
local dependents = require("dependents")
local events = require("events")
local ids = require("ids")
local propagation = require("propagation")
local rules = require("rules")

local submission = {}

--- Maximum jobs that one call changes because it notified them; the others are left to the caller.
local ROOM = 100

local function refuse(code, why)
  error({ err = code .. " oq1_submitGraph: " .. why })
end

local function bad(why)
  refuse("OQ_BAD_ARGUMENT", why)
end

local function check_nodes(queue, nodes)
  local seen = {}
  for place, job in ipairs(nodes) do
    local id = job.custom_id
    if id == "" or seen[id] or job.parent_id ~= "" then
      bad("node " .. place .. " needs an id of its own and no parent")
    end
    local problem = creation.problem(queue, job)
    if problem == "ERR:COST_EXCEEDS_CAPACITY" then
      refuse("OQ_TOO_EXPENSIVE", "node " .. place .. " costs more than its token bucket holds")
    end
    seen[id], job.is_new = true, not problem
  end
end

local function check_place(nodes, place, what)
  if not nodes[place] then
    bad(what .. " names node " .. place .. " of " .. #nodes)
  end
end

--- Refuse arguments that would leave a graph half written, or waiting forever.
function submission.check(queue, graph)
  local nodes = graph.nodes
  check_nodes(queue, nodes)
  for _, edge in ipairs(graph.edges) do
    if edge.dependent < 1 or edge.dependency <= edge.dependent or edge.dependency > #nodes then
      bad("an edge from " .. edge.dependent .. " to " .. edge.dependency .. " leads to no later node")
    end
  end
  for _, edge in ipairs(graph.foreign) do
    check_place(nodes, edge.dependent, "a foreign dependency")
    if not dependents.read_member(queue, edge.member) then
      bad("'" .. edge.member .. "' names no job")
    end
  end
  for _, edge in ipairs(graph.outside) do
    check_place(nodes, edge.dependency, "a foreign dependent")
    if not dependents.read_member(queue, dependents.sibling(queue, edge.queue_name) .. edge.job_id) then
      bad("'" .. edge.job_id .. "' of '" .. edge.queue_name .. "' names no job")
    end
  end
  for _, ruled in ipairs(graph.rules) do
    check_place(nodes, ruled.place, "a rule")
    if not rules.is_rule(ruled.rule) then
      bad("'" .. ruled.rule .. "' is no trigger rule")
    end
  end
end

--- Write the flow's record, once.
function submission.note(flow_key, flows_key, flow_id, plan, now, held)
  if redis.call("HSETNX", flow_key, "plan", plan) == 1 then
    redis.call("HSET", flow_key, "createdAt", now, "state", held and "submitting" or "running")
    redis.call("ZADD", flows_key, "NX", now, flow_id)
    redis.call("ZADD", flows_key .. ":due", now, flow_id) -- when the reconciler should read it
  end
end

local function wait_for(job, member, weak)
  job.waits_for[#job.waits_for + 1] = member
  if weak then
    job.weak[#job.weak + 1] = member
  end
end

--- Set the dependents and the dependencies of every node.
local function link(queue, graph)
  local nodes, name = graph.nodes, dependents.queue_name(queue)
  for _, job in ipairs(nodes) do
    job.told, job.waits_for, job.weak = {}, {}, {}
  end
  for _, edge in ipairs(graph.edges) do
    local dependent, dependency = nodes[edge.dependent], nodes[edge.dependency]
    wait_for(dependent, queue .. dependency.custom_id, edge.weak)
    dependency.told[#dependency.told + 1] = { queue_name = name, job_id = dependent.custom_id }
  end
  for _, edge in ipairs(graph.foreign) do
    wait_for(nodes[edge.dependent], edge.member, edge.weak)
  end
  for _, edge in ipairs(graph.outside) do
    local told = nodes[edge.dependency].told
    told[#told + 1] = { queue_name = edge.queue_name, job_id = edge.job_id, is_outside = true }
  end
  for _, ruled in ipairs(graph.rules) do
    nodes[ruled.place].rule = ruled.rule
  end
end

--- Store the dependents where completions read them, and add what the job's record says of them to its fields.
local function register(queue, job, fields)
  local members, parent_ids, parent_queues = {}, {}, {}
  for index, other in ipairs(job.told) do
    members[index] = dependents.sibling(queue, other.queue_name) .. other.job_id
    parent_ids[index], parent_queues[index] = other.job_id, other.queue_name
  end
  chunks.call(members, "SADD", queue .. "parents:" .. job.custom_id)
  fields[#fields + 1], fields[#fields + 2] = "parentIds", cjson.encode(parent_ids)
  fields[#fields + 1], fields[#fields + 2] = "parentQueues", cjson.encode(parent_queues)
end

--- The fields of a job that only this library knows, without those of its optional dependencies.
local function describe(job, flow_id)
  local fields = {}
  if flow_id ~= "" then
    fields[1], fields[2] = "flow", flow_id
  end
  if job.rule and job.waits_for[1] then
    fields[#fields + 1], fields[#fields + 2] = "triggerRule", job.rule
  end
  if job.weak[1] then
    fields[#fields + 1], fields[#fields + 2] = "depsOptional", #job.weak
  end
  return fields
end

--- Store what the job waits for.
local function store_dependencies(queue, job, held)
  local members = dependencies.obstacles(queue, held, job.waits_for[1] and job.rule)
  for _, member in ipairs(job.waits_for) do
    members[#members + 1] = member
  end
  chunks.call(members, "SADD", queue .. "deps:" .. job.custom_id)
  local fields = {}
  for index, member in ipairs(job.weak) do
    fields[2 * index - 1], fields[2 * index] = dependencies.weak_field(member), 1
  end
  chunks.call(fields, "HSET", queue .. "job:" .. job.custom_id)
end

local function create(queue, job, flow_id, held)
  local waits, only = job.waits_for[1] ~= nil, job.told[1]
  local name = dependents.queue_name(queue)
  -- The only dependent of a ready job is named in its record, the others in a set; as is one of another queue, for the
  -- record makes other clients' completions touch that queue's keys, which a cluster refuses.
  local in_record = not waits and #job.told == 1 and only.queue_name == name
  if in_record then
    job.parent_id, job.parent_queue = only.job_id, name
  end
  job.keeps_limits, job.fields = waits, describe(job, flow_id)
  if only and not in_record then
    register(queue, job, job.fields)
  end
  ids.take(queue, job.custom_id)
  creation.write(queue, job.custom_id, job, (waits or held) and "waiting-children" or nil)
  store_dependencies(queue, job, held)
  events.emit(queue, "added", job.custom_id, "name", job.job_name)
end

--- Notify dependents, which may be new, of the outcome of a job that existed before.
local function register_new(queue, job, created)
  local members, named = {}, redis.call("HGET", queue .. "job:" .. job.custom_id, "parentId")
  for _, other in ipairs(job.told) do
    local member = dependents.sibling(queue, other.queue_name) .. other.job_id
    if (created[member] or other.is_outside) and other.job_id ~= named then
      members[#members + 1] = member
    end
  end
  chunks.call(members, "SADD", queue .. "parents:" .. job.custom_id)
end

--- Write the jobs that don't exist yet. Dependents are notified of existing ones that have ended.
function submission.write(queue, graph, now, flow_id, held)
  link(queue, graph)
  local outcomes = propagation.new(queue, now, ROOM, true)
  local replies, created = {}, {}
  for place, job in ipairs(graph.nodes) do
    if job.is_new or not ids.exists(queue, job.custom_id) then
      create(queue, job, flow_id, held)
      replies[place], created[queue .. job.custom_id] = job.custom_id, true
      if job.rule == "always" and job.waits_for[1] then
        propagation.decide(outcomes, queue, job.custom_id)
      end
    else
      replies[place] = "duplicate"
      register_new(queue, job, created)
      propagation.ended(outcomes, job.custom_id)
    end
  end
  local _, elsewhere, remaining = unpack(propagation.finish(outcomes))
  return { replies, elsewhere, remaining }
end

return submission
