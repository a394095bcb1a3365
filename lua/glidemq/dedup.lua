--- Create one job unless another holds its deduplication id.
--- @queue   id
--- @key   dedup                hash         deduplication ids and the job each stands for
--- @key   id                   string       counter of automatic ids
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @key?  parent_deps          set          members the parent waits for
--- @arg   dedup_id             text         the deduplication id
--- @arg   dedup_ttl_ms         int =0       length of a `throttle` window
--- @arg   mode                 text         `simple`: skip while the other is unfinished; `throttle`: skip within the window; `debounce`: replace it while it waits for its time
--- @record  job the arguments that follow are its fields
--- @arg   job_name             text         what kind of job it is
--- @arg   data                 text         payload, as the serializer wrote it
--- @arg   opts                 json         the caller's options, stored verbatim
--- @arg   timestamp_ms         int          when it was created, epoch ms
--- @arg   delay_ms             int =0       how long it waits before it is ready
--- @arg   priority             int =0       0 is outside the order; otherwise lower runs first
--- @arg   parent_id            text =       id of the job that waits for it
--- @arg   max_attempts         int =0       attempts allowed; 0 means one
--- @arg   ordering_key         text =       group it belongs to; empty for none
--- @arg   group_concurrency    int =0       jobs of the group that may be active at once; 0 means one
--- @arg   group_rate_max       int =0       jobs of the group per window; 0 for no limit
--- @arg   group_rate_duration_ms int =0       length of that window
--- @arg   tb_capacity          int =0       size of the group's token bucket, millitokens; 0 for none
--- @arg   tb_refill_rate       int =0       millitokens per second that flow in
--- @arg   cost                 int =0       millitokens the job takes; 0 means 1000
--- @arg   ttl_ms               int =0       how long after creation it may still start; 0 forever
--- @arg   custom_id            text =       the caller's id; empty for an automatic one
--- @arg   lifo                 flag =0      put it on the LIFO list
--- @arg   parent_queue         text =       name of the parent's queue
--- @end     job
--- @arg   skip_events          flag =0      emit no `added` and `removed` event
--- @returns text the id, `skipped`, `duplicate`, `ERR:COST_EXCEEDS_CAPACITY` or `ERR:ID_EXHAUSTED`; only with an id was anything written
--- @cost    O(log N) for a delayed or prioritized job, else O(1)

local creation = require("creation")
local dedup = require("dedup")
local events = require("events")

local standing = dedup.standing(queue, dedup_key, dedup_id)
if dedup.stands_in(standing, mode, job.timestamp_ms, dedup_ttl_ms) then
  return "skipped"
end
local replaced = dedup.is_replaced(standing, mode)
local problem = creation.problem(queue, job, replaced and standing.id)
if problem then
  return problem
end
if replaced then
  dedup.remove(queue, standing, job.timestamp_ms, skip_events)
end
local job_id, exhausted = creation.job(queue, job, parent_deps_key)
if not job_id then
  return exhausted
end
redis.call("HSET", dedup_key, dedup_id, job_id .. ":" .. string.format("%.0f", job.timestamp_ms))
if not skip_events then
  events.emit(queue, "added", job_id, "name", job.job_name)
end
return job_id
