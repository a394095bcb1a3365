--- Create a job that waits, and the jobs it waits for, all or none.
--- @queue   id
--- @key   id                   string       counter of the parent's automatic ids
--- @key   stream               stream       the parent's queue
--- @key   scheduled            zset         the parent's queue
--- @key   events               stream       the parent's queue
--- @arg   parent_name          text         what kind of job the parent is
--- @arg   parent_data          text         its payload
--- @arg   parent_opts          json         its options; ordering, cost and ttl are read from here
--- @arg   timestamp_ms         int          when all were created, epoch ms
--- @arg   parent_delay_ms      int =0       stored only
--- @arg   parent_priority      int =0       stored only
--- @arg   parent_max_attempts  int =0       attempts allowed; 0 means one
--- @arg   child_count          int #children how many children follow
--- @arg   parent_custom_id     text =       the caller's id; empty for an automatic one
--- @each    children FlowChild: a job the parent waits for
--- @key   id                   string       counter of the child's automatic ids
--- @key   stream               stream       the child's queue
--- @key   scheduled            zset         the child's queue
--- @key   events               stream       the child's queue
--- @arg   name                 text         what kind of job the child is
--- @arg   data                 text         its payload
--- @arg   opts                 json         its options; ordering, cost, ttl and lifo are read from here
--- @arg   delay_ms             int =0       how long it waits before it is ready
--- @arg   priority             int =0       0 is outside the order; otherwise lower runs first
--- @arg   max_attempts         int =0       attempts allowed; 0 means one
--- @arg   queue_prefix         text         its queue's key prefix, `prefix:{queue}`
--- @arg   parent_queue         text         name of the parent's queue
--- @arg   custom_id            text =       the caller's id; empty for an automatic one
--- @end     children
--- @arg   extra_dep_count      int #extra_deps how many members follow
--- @arg*  extra_deps           text         further members the parent waits for
--- @returns json array of the parent's and the children's ids; `["duplicate"]`; `["ERR:ID_EXHAUSTED"]`; or the bare text `ERR:COST_EXCEEDS_CAPACITY`; only with ids was anything written
--- @cost    O(log N) per child

local creation = require("creation")
local events = require("events")
local graph = require("graph")

local parent = graph.parent({
  job_name = parent_name,
  data = parent_data,
  opts = parent_opts,
  timestamp_ms = timestamp_ms,
  delay_ms = parent_delay_ms,
  priority = parent_priority,
  max_attempts = parent_max_attempts,
  custom_id = parent_custom_id,
})
for _, child in ipairs(children) do
  graph.child(child, timestamp_ms)
end

-- All that can be wrong is found out before the first record is written.
local problem, chosen = graph.problem(queue, parent, children)
if problem then
  return problem
end
local job_ids, no_ids = graph.take_ids(queue, parent, children, chosen)
if not job_ids then
  return no_ids
end
local parent_id = job_ids[1]

creation.write(queue, parent_id, parent, "waiting-children")
local deps_key = queue .. "deps:" .. parent_id
for index, child in ipairs(children) do
  local child_id = job_ids[index + 1]
  child.parent_id = parent_id
  creation.write(child.queue, child_id, child)
  redis.call("SADD", deps_key, child.queue .. child_id)
  events.emit(child.queue, "added", child_id, "name", child.job_name)
end
for _, member in ipairs(extra_deps) do
  redis.call("SADD", deps_key, member)
end
events.emit(queue, "added", parent_id, "name", parent.job_name)
return cjson.encode(job_ids)
