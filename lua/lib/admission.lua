--- Admission of a grouped job: its turn, a free slot, tokens, the rate window.

local groups = require("groups")
local guarded = require("guarded")
local record = require("record")
local release = require("release")
local tokens = require("tokens")

local admission = {}

local function park(queue, name, job_id, job, verdict)
  groups.park(queue, name, job_id, groups.park_score(job_id, job))
  return verdict
end

--- Park the job until the tokens it costs are there and the window has room; nil when both hold now.
local function limited(queue, name, group, job_id, job, cost, now)
  local level = group.capacity > 0 and groups.refill(queue, name, group, now)
  local token_wait = level and level < cost and tokens.wait_ms(cost, level, group.refill_rate)
  local window_wait = groups.window_room(group, now) == 0 and group.window_start + group.rate_duration - now
  if not token_wait and not window_wait then
    return nil
  end
  groups.hold_until(queue, name, now + math.max(token_wait or 0, window_wait or 0))
  return park(queue, name, job_id, job, token_wait and "GROUP_TOKEN_LIMITED" or "GROUP_RATE_LIMITED")
end

--- Deduct what the activation uses.
local function admit(queue, name, group, seq, returning, has_slot, cost, now)
  local changes = {}
  local function set(field, value)
    changes[#changes + 1], changes[#changes + 2] = field, value
  end
  if group.capacity > 0 then
    -- Refilled first, also for a job that does not wait: what the bucket could not hold would pay for it.
    set("tbTokens", groups.refill(queue, name, group, now) - cost)
  end
  if group.rate_max > 0 and group.rate_duration > 0 then
    local running = groups.window_room(group, now)
    set("rateWindowStart", running and group.window_start or now)
    set("rateCount", running and group.rate_count + 1 or 1)
  end
  if not has_slot then
    set("active", group.active + 1)
  end
  if not returning and seq > 0 then
    set("nextSeq", seq + 1)
  end
  if changes[1] then
    groups.write(queue, name, unpack(changes))
  end
end

--- Let one job in. Returns nil, or why not: the job is then parked, or failed when it costs too much.
--- A job that was active before has its slot, unless it was parked since; limits make it pay, but not wait.
function admission.enter(queue, job_id, job, now, skip_events)
  local name, seq = job.groupKey, record.sequence(job)
  local group = groups.load(queue, name)
  local advanced = seq > 0 and groups.advance(queue, name, group)
  local in_sequence = seq > 0 and group.next_seq > 0
  local returning = in_sequence and seq < group.next_seq
  if in_sequence and seq > group.next_seq then
    park(queue, name, job_id, job)
    if advanced then
      release.promote(queue, name, group, now)
    end
    return "GROUP_ORDERED"
  end
  local has_slot = returning and not job.slotFreed
  if groups.is_held(queue, name, group, now) then
    if has_slot then
      -- Its own slot would keep it from being released.
      groups.free_slot(queue, name, job_id, group.active)
    end
    return park(queue, name, job_id, job, "GROUP_RATE_LIMITED")
  end
  if not has_slot and group.max_concurrency > 0 and group.active >= group.max_concurrency then
    return park(queue, name, job_id, job, "GROUP_FULL")
  end
  local cost = tonumber(job.cost) or tokens.DEFAULT_COST
  if group.capacity > 0 and cost > group.capacity then
    release.reject(queue, job_id, now, job.processedOn, skip_events)
    release.forfeit(queue, job, now)
    return "ERR:COST_EXCEEDS_CAPACITY"
  end
  local verdict = not returning and limited(queue, name, group, job_id, job, cost, now)
  if verdict then
    return verdict
  end
  admit(queue, name, group, seq, returning, has_slot, cost, now)
  if job.slotFreed then
    redis.call("HDEL", queue .. "job:" .. job_id, "slotFreed")
  end
  if seq > 0 then
    guarded.call("ZREM", groups.parked_key(queue, name), job_id)
  end
  return nil
end

return admission
