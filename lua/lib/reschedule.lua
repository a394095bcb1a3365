--- Changes when a job that has not started runs: its priority, or its delay.

local events = require("events")
local placement = require("placement")
local record = require("record")
local scheduled = require("scheduled")
local shares = require("shares")
local stream = require("stream")

local reschedule = {}

local function update(queue, job_id, ...)
  redis.call("HSET", queue .. "job:" .. job_id, ...)
end

--- Take a scheduled job to the stream, or to its share.
local function make_ready(queue, job_id, job)
  redis.call("ZREM", queue .. "scheduled", job_id)
  if job.share then
    placement.ready(queue, job_id, job)
  else
    stream.push(queue, job_id, job.name)
  end
end

local function withdraw(queue, group, job_id, job)
  return job.share and shares.remove(queue, job_id, job.share) or stream.withdraw(queue, group, job_id, job)
end

local by_priority = {}

function by_priority.waiting(queue, job_id, job, group, priority)
  if priority == 0 then
    return "no_op"
  elseif not withdraw(queue, group, job_id, job) then
    return "error:not_in_stream"
  end
  scheduled.add(queue, job_id, priority, 0)
  update(queue, job_id, "state", "prioritized", "priority", priority)
end

function by_priority.prioritized(queue, job_id, job, _, priority)
  if priority == 0 then
    update(queue, job_id, "state", "waiting", "priority", 0)
    job.priority = 0
    make_ready(queue, job_id, job)
  else
    scheduled.add(queue, job_id, priority, 0)
    update(queue, job_id, "priority", priority)
  end
end

function by_priority.delayed(queue, job_id, _, _, priority)
  local score = redis.call("ZSCORE", queue .. "scheduled", job_id)
  if not score then
    return "error:not_in_scheduled"
  end
  local _, due = scheduled.split(tonumber(score))
  scheduled.add(queue, job_id, priority, due)
  update(queue, job_id, "priority", priority)
end

local by_delay = {}

function by_delay.waiting(queue, job_id, job, group, delay, now)
  if delay == 0 then
    return "no_op"
  elseif not withdraw(queue, group, job_id, job) then
    return "error:not_in_stream"
  end
  scheduled.add(queue, job_id, record.priority(job), now + delay)
  update(queue, job_id, "state", "delayed", "delay", delay)
end

function by_delay.prioritized(queue, job_id, _, _, delay, now)
  if delay == 0 then
    return "no_op"
  end
  return by_delay.delayed(queue, job_id, nil, nil, delay, now)
end

function by_delay.delayed(queue, job_id, job, _, delay, now)
  local score = redis.call("ZSCORE", queue .. "scheduled", job_id)
  if not score then
    return "error:not_in_scheduled"
  end
  local band = scheduled.split(tonumber(score))
  if delay > 0 then
    scheduled.add(queue, job_id, band, now + delay)
    update(queue, job_id, "state", "delayed", "delay", delay)
  elseif band > 0 then
    scheduled.add(queue, job_id, band, 0)
    update(queue, job_id, "state", "prioritized", "delay", 0)
  else
    update(queue, job_id, "state", "waiting", "delay", 0)
    make_ready(queue, job_id, job)
  end
end

--- Apply the change that fits the job's state and emit its event; returns the reply.
local function apply(changes, event, field, queue, job_id, group, value, now)
  local job = record.load(queue, job_id)
  if not job then
    return "error:not_found"
  end
  local change = changes[job.state]
  if not change then
    return "error:invalid_state"
  end
  local refusal = change(queue, job_id, job, group, value, now)
  if refusal then
    return refusal
  end
  events.emit(queue, event, job_id, field, value)
  return "ok"
end

function reschedule.priority(queue, job_id, group, priority)
  if not priority or priority < 0 then
    return "error:invalid_priority"
  end
  return apply(by_priority, "priority-changed", "priority", queue, job_id, group, priority)
end

function reschedule.delay(queue, job_id, group, delay, now)
  if not delay or delay < 0 then
    return "error:invalid_delay"
  elseif not now then
    error("ERR glidemq_changeDelay: 'now_ms' is missing or malformed", 0)
  end
  return apply(by_delay, "delay-changed", "delay", queue, job_id, group, delay, now)
end

return reschedule
