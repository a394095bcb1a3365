--- The one way in which a job completes.

local active = require("active")
local events = require("events")
local flows = require("flows")
local metrics = require("metrics")
local numbers = require("numbers")
local ordering = require("ordering")
local record = require("record")
local release = require("release")
local retention = require("retention")

local completion = {}

-- A hint that says the job is known to have none.
local ABSENT = "__"

--- What is known of the job: the caller's hints where it gave them all, else the record.
function completion.known(queue, done)
  local group, key, processed_on = done.group_key_hint, done.ordering_key_hint, done.processed_on_hint
  if group ~= "" and key ~= "" and processed_on ~= "" then
    return {
      groupKey = group ~= ABSENT and group,
      orderingKey = key ~= ABSENT and key,
      orderingSeq = done.ordering_seq_hint,
      processedOn = processed_on,
    }
  end
  local job = record.load(queue, done.job_id) or {}
  return {
    groupKey = group ~= ABSENT and (group ~= "" and group or job.groupKey),
    orderingKey = key ~= ABSENT and (key ~= "" and key or job.orderingKey),
    orderingSeq = done.ordering_seq_hint ~= "" and done.ordering_seq_hint or job.orderingSeq,
    processedOn = processed_on ~= "" and processed_on or job.processedOn,
  }
end

--- Write the result; false when there is no such job, which a record made here would pretend.
function completion.write(queue, done)
  local key = queue .. "job:" .. done.job_id
  local added = redis.call(
    "HSET", key,
    "state", "completed", "returnvalue", done.returnvalue, "finishedOn", numbers.text(done.now_ms)
  )
  if added == 3 and redis.call("HLEN", key) == 3 then
    redis.call("UNLINK", key)
    return false
  end
  return true
end

--- What a job that completed sets free, and the word of it.
function completion.free(queue, done, known)
  ordering.done(queue, known.orderingKey, known.orderingSeq)
  release.slot(queue, known.groupKey, done.now_ms)
  if not done.skip_events then
    events.emit(queue, "completed", done.job_id, "returnvalue", done.returnvalue)
  end
end

--- Complete `done.job_id`. `known` has fields of its record: groupKey, orderingKey, orderingSeq, processedOn.
function completion.settle(queue, done, known, parent_job_key)
  local exists = completion.write(queue, done)
  active.leave(queue, done.job_id, done.entry_id, done.group, done.broadcast, not exists)
  if exists then
    completion.free(queue, done, known)
    if not done.skip_metrics then
      metrics.record(queue, "completed", done.now_ms, known.processedOn)
    end
  end
  if done.deps_member ~= "" and done.parent_id ~= "" and parent_job_key then
    flows.notify(flows.queue_of(parent_job_key, done.parent_id), done.parent_id, done.deps_member)
  end
  if exists then
    flows.notify_registered(queue, done.job_id)
    redis.call("ZADD", queue .. "completed", numbers.text(done.now_ms), done.job_id)
    retention.apply(queue, "completed", { done.job_id }, done.now_ms, done)
  end
end

return completion
