--- Creates jobs; every function that adds one uses this.

local ids = require("ids")
local membership = require("membership")
local overdue = require("overdue")
local placement = require("placement")
local shares = require("shares")
local tags = require("tags")

local creation = {}

--- Why the job cannot be created; nil when it can, and then a job that had its id, but expired before it ran, is removed.
--- Otherwise nothing is written. `replaced_id` is as good as gone.
function creation.problem(queue, job, replaced_id)
  local is_taken = job.custom_id ~= "" and job.custom_id ~= replaced_id and ids.exists(queue, job.custom_id)
  if is_taken and not overdue.yields(queue, job.custom_id, job.timestamp_ms) then
    return "duplicate"
  elseif job.ordering_key ~= "" and membership.too_expensive(job) then
    return "ERR:COST_EXCEEDS_CAPACITY"
  elseif is_taken and not overdue.remove(queue, job.custom_id, job.timestamp_ms) then
    return "duplicate"
  end
  return nil
end

--- The fields with one more; the first makes the list.
local function with(fields, name, value)
  if not fields then
    return { name, value }
  end
  local size = #fields
  fields[size + 1], fields[size + 2] = name, value
  return fields
end

--- The fields that only some jobs have, after those in `job.fields`; nil without any.
local function optional_fields(job, sequence, names)
  local fields = job.fields
  if sequence then
    fields = with(with(fields, "groupKey", job.ordering_key), "orderingSeq", sequence)
  end
  if job.cost > 0 then
    fields = with(fields, "cost", job.cost)
  end
  if job.ttl_ms > 0 then
    fields = with(fields, "expireAt", job.timestamp_ms + job.ttl_ms)
  end
  if job.parent_id ~= "" then
    fields = with(fields, "parentId", job.parent_id)
    if job.parent_queue ~= "" then
      fields = with(fields, "parentQueue", job.parent_queue)
    end
  end
  if job.scheduler_name and job.scheduler_name ~= "" then
    fields = with(fields, "schedulerName", job.scheduler_name)
  end
  if job.lifo then
    fields = with(fields, "lifo", "1")
  end
  if names then
    fields = with(fields, "tags", cjson.encode(names))
  end
  if job.share then
    fields = with(fields, "share", job.share)
  end
  return fields
end

--- Write the record; what follows `state` are more of its fields.
local function record(queue, job_id, job, state, ...)
  -- Zeros are common, and a text costs less to send than a number.
  redis.call(
    "HSET", queue .. "job:" .. job_id, "id", job_id, "name", job.job_name, "data", job.data, "opts", job.opts,
    "timestamp", job.timestamp_ms, "attemptsMade", "0",
    "delay", job.delay_ms == 0 and "0" or job.delay_ms, "priority", job.priority == 0 and "0" or job.priority,
    "maxAttempts", job.max_attempts == 0 and "0" or job.max_attempts, "state", state, ...
  )
end

--- Write a job whose id is taken. With a `state` it gets no place: another call releases it. One of many is moved on from its
--- share by the caller, after the last.
function creation.write(queue, job_id, job, state)
  local sequence = job.ordering_key ~= "" and membership.join(queue, job) or nil
  local names = tags.of_options(job.opts)
  job.share = shares.of_options(job.opts)
  local entry_id
  if not state then
    state, entry_id = placement.new(queue, job_id, job)
  end
  local fields = optional_fields(job, sequence, names)
  if fields then
    record(queue, job_id, job, state, unpack(entry_id and with(fields, "entry", entry_id) or fields))
  elseif entry_id then
    record(queue, job_id, job, state, "entry", entry_id)
  else
    record(queue, job_id, job, state)
  end
  if names then
    tags.enter(queue, job_id, names, job.timestamp_ms)
  end
  if job.share and state == "waiting" and not job.is_of_many then
    shares.feed(queue, 0)
  end
end

--- Create a job without a problem; returns its id, or the reply when there is no id left for it.
--- `taken_id` is an id that was taken for it before.
function creation.job(queue, job, parent_deps_key, taken_id)
  local job_id = taken_id or ids.take(queue, job.custom_id)
  if not job_id then
    return nil, "ERR:ID_EXHAUSTED"
  end
  if job.parent_id ~= "" and job.parent_queue and job.parent_queue ~= "" and parent_deps_key then
    redis.call("SADD", parent_deps_key, queue .. job_id)
  end
  creation.write(queue, job_id, job)
  return job_id
end

return creation
