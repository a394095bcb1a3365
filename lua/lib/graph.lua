--- A parent and its children, from the arguments of addFlow: reads options and assigns ids.

local ids = require("ids")
local membership = require("membership")

local graph = {}

local function section(options, name)
  return type(options[name]) == "table" and options[name] or {}
end

local function number(value)
  return tonumber(value) or 0
end

--- The job that a name, a payload and the JSON text of options describe.
local function describe(spec)
  local readable, options = pcall(cjson.decode, spec.opts)
  options = readable and type(options) == "table" and options or {}
  local ordering = section(options, "ordering")
  local rate, bucket = section(ordering, "rateLimit"), section(ordering, "tokenBucket")
  spec.ordering_key = type(ordering.key) == "string" and ordering.key or ""
  spec.group_concurrency = number(ordering.concurrency)
  spec.group_rate_max = number(rate.max)
  spec.group_rate_duration_ms = number(rate.duration)
  spec.tb_capacity = math.floor(number(bucket.capacity) * 1000)
  spec.tb_refill_rate = math.floor(number(bucket.refillRate) * 1000)
  spec.cost = math.floor(number(options.cost) * 1000)
  spec.ttl_ms = number(options.ttl)
  spec.keeps_limits = true
  return spec, options
end

function graph.parent(spec)
  spec.parent_id, spec.parent_queue = "", ""
  return (describe(spec))
end

function graph.child(spec, timestamp)
  spec.job_name, spec.timestamp_ms = spec.name, timestamp
  spec.queue = spec.queue_prefix .. ":"
  spec.keeps_concurrency = true
  local _, options = describe(spec)
  spec.lifo = options.lifo == true
  return spec
end

local DUPLICATE, EXHAUSTED = '["duplicate"]', '["ERR:ID_EXHAUSTED"]'

--- Why these jobs cannot be created together; nil when they can.
--- Also returns the job keys that callers chose, which automatic ids must keep clear of.
function graph.problem(queue, parent, children)
  local chosen = {}
  local function is_taken(job_queue, job_id)
    if job_id == "" then
      return false
    end
    local key = job_queue .. "job:" .. job_id
    local taken = chosen[key] or ids.exists(job_queue, job_id)
    chosen[key] = true
    return taken
  end
  if is_taken(queue, parent.custom_id) then
    return DUPLICATE
  end
  for _, child in ipairs(children) do
    if is_taken(child.queue, child.custom_id) then
      return DUPLICATE
    end
  end
  for _, job in ipairs({ parent, unpack(children) }) do
    if membership.too_expensive(job) then
      return "ERR:COST_EXCEEDS_CAPACITY"
    end
  end
  return nil, chosen
end

--- Take an id for each job; returns them, the parent's first. nil and the reply when that is impossible.
function graph.take_ids(queue, parent, children, chosen)
  local parent_id = ids.take(queue, parent.custom_id)
  if not parent_id then
    return nil, EXHAUSTED
  elseif parent.custom_id == "" and chosen[queue .. "job:" .. parent_id] then
    return nil, DUPLICATE
  end
  local taken = { parent_id }
  for index, child in ipairs(children) do
    local child_id = ids.take(child.queue, child.custom_id, chosen)
    if not child_id then
      return nil, EXHAUSTED
    end
    taken[index + 1] = child_id
  end
  return taken
end

return graph
