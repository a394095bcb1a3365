--- Releases parked jobs of a group: when a slot becomes free, a limit has passed, or a job before them was removed.

local events = require("events")
local failure = require("failure")
local groups = require("groups")
local guarded = require("guarded")
local ordering = require("ordering")
local record = require("record")
local stream = require("stream")
local tokens = require("tokens")

local release = {}

local MOST_PROMOTED = 1000
local SPARE_POPS = 20
local MOST_HEADS = 100

local COST_REASON = "cost exceeds token bucket capacity"

--- Fail a job that costs more than its group's bucket ever holds.
function release.reject(queue, job_id, now, processed_on, skip_events)
  failure.record(queue, job_id, COST_REASON, now)
  failure.announce(queue, job_id, COST_REASON, now, processed_on, skip_events)
end

--- Drop a parked job that will not run, so that its sequence number blocks no other job.
local function drop(queue, name, group, seq)
  if group.next_seq > 0 and seq >= group.next_seq then
    groups.skip(queue, name, seq)
  end
end

--- Whether the bucket has what the first parked job costs. Heads that are gone or cost too much leave.
local function bucket_allows(queue, name, group, now)
  if now <= 0 or group.capacity <= 0 then
    return true
  end
  local parked = groups.parked_key(queue, name)
  local level = groups.refill(queue, name, group, now)
  for _ = 1, MOST_HEADS do
    local head = guarded.call("ZRANGE", parked, 0, 0, "WITHSCORES")
    if not head[1] then
      return false
    end
    local job = record.load(queue, head[1])
    local cost = job and (tonumber(job.cost) or tokens.DEFAULT_COST)
    if job and cost <= level then
      return true
    elseif job and cost <= group.capacity then
      groups.hold_until(queue, name, now + tokens.wait_ms(cost, level, group.refill_rate))
      return false
    end
    redis.call("ZREM", parked, head[1])
    drop(queue, name, group, tonumber(head[2]))
    if job then
      release.reject(queue, head[1], now, job.processedOn)
    end
  end
  groups.wake_soon(queue, name)
  return false
end

--- How many jobs the group may start now; a running window that is used up is waited for.
local function room(queue, name, group, now)
  local free = MOST_PROMOTED
  if group.max_concurrency > 0 then
    free = math.min(free, group.max_concurrency - group.active)
  end
  if now > 0 and group.rate_max > 0 and free > 0 then
    local window = groups.window_room(group, now)
    if window == 0 then
      groups.hold_until(queue, name, group.window_start + group.rate_duration)
    end
    free = math.min(free, window or group.rate_max)
  end
  return free
end

--- Move one popped job on unless its turn comes after `turn`.
--- Returns `promoted`, `dropped` or `blocked`, and its sequence number.
local function move_on(queue, name, group, job_id, score, turn, now)
  local job = record.load(queue, job_id)
  if not job then
    drop(queue, name, group, score)
    return "dropped"
  elseif job.state ~= "group-waiting" then
    return "dropped"
  end
  local seq = record.sequence(job)
  if now > 0 and failure.has_expired(job, now) then
    failure.expire(queue, job_id, now, job.processedOn)
    drop(queue, name, group, seq)
    return "dropped"
  elseif turn > 0 and seq > turn then
    return "blocked", seq
  end
  redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting")
  stream.push(queue, job_id, job.name)
  return "promoted", seq
end

--- Move up to `free` parked jobs to the stream, in their turns; returns how many.
--- The stored turn stays where it is: activation moves it. A promoted job still releases the next one here.
local function promote_in_turn(queue, name, group, free, now)
  local parked, promoted = groups.parked_key(queue, name), 0
  local turn = group.next_seq
  for _ = 1, free + SPARE_POPS do
    local popped = promoted < free and guarded.call("ZPOPMIN", parked) or {}
    if not popped[1] then
      return promoted
    end
    local outcome, seq = move_on(queue, name, group, popped[1], tonumber(popped[2]), turn, now)
    if outcome == "blocked" then
      redis.call("ZADD", parked, seq, popped[1])
      return promoted
    elseif outcome == "promoted" then
      promoted = promoted + 1
      turn = seq == turn and turn + 1 or turn
    elseif promoted == 0 and groups.advance(queue, name, group) then
      turn = group.next_seq
    end
  end
  if promoted == 0 then
    groups.wake_soon(queue, name)
  end
  return promoted
end

--- Release as many parked jobs as all limits allow; returns how many.
--- With `now` 0 the rate limits are left to the activation.
function release.promote(queue, name, group, now)
  if redis.call("EXISTS", groups.parked_key(queue, name)) == 0 then
    return 0
  end
  if groups.is_held(queue, name, group, now) then
    return 0
  end
  local free = room(queue, name, group, now)
  if free <= 0 or not bucket_allows(queue, name, group, now) then
    return 0
  end
  groups.advance(queue, name, group)
  return promote_in_turn(queue, name, group, free, now)
end

--- Give a slot of a group back.
function release.slot(queue, name, now)
  if not name or name == "" then
    return
  end
  local group = groups.load(queue, name)
  if group.active > 0 then
    group.active = group.active - 1
    groups.write(queue, name, "active", group.active)
  end
  release.promote(queue, name, group, now)
end

--- A job leaves for good from wherever it was: give its slot back, or step over its turn.
function release.forfeit(queue, job, now)
  local name, seq = job.groupKey, record.sequence(job)
  ordering.done(queue, job.orderingKey, job.orderingSeq)
  if not name or name == "" then
    return
  end
  if job.state == "active" then
    release.slot(queue, name, now)
    return
  end
  if seq <= 0 or record.has_ended(job) then
    return
  end
  local group = groups.load(queue, name)
  if seq >= group.next_seq then
    drop(queue, name, group, seq)
    -- Only jobs whose turn it becomes are woken; without parked jobs, admission advances the turn later.
    if redis.call("EXISTS", groups.parked_key(queue, name)) == 1 and groups.advance(queue, name, group) then
      release.promote(queue, name, group, now)
    end
  elseif job.state ~= "group-waiting" and not job.slotFreed then
    -- A job that has been active keeps its slot between attempts, except while it is parked.
    release.slot(queue, name, now)
  end
end

--- Expire a job, whatever its state.
function release.expire(queue, job_id, job, now)
  if job.state == "failed" then
    return
  end
  failure.expire(queue, job_id, now, job.processedOn)
  release.forfeit(queue, job, now)
end

--- Fail a job that was cancelled before it started.
function release.revoke(queue, job_id, job, now)
  failure.record(queue, job_id, "revoked", now, "failureKind", "cancelled")
  release.forfeit(queue, job, now)
  events.emit(queue, "revoked", job_id)
end

return release
