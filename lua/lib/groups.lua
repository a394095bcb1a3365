--- State of one group: its limits, its slots, its sequence, and the jobs parked until admission.

local guarded = require("guarded")
local tokens = require("tokens")

local groups = {}

local FIELDS = {
  "maxConcurrency", "active", "nextSeq",
  "rateMax", "rateDuration", "rateWindowStart", "rateCount",
  "tbCapacity", "tbRefillRate", "tbTokens", "tbLastRefill", "tbRefillRemainder", "heldUntil",
}
local MOST_SKIPS = 10000

local function hash(queue, name)
  return queue .. "group:" .. name
end

function groups.parked_key(queue, name)
  return queue .. "groupq:" .. name
end

--- The group's numbers.
function groups.load(queue, name)
  local values = guarded.call("HMGET", hash(queue, name), unpack(FIELDS))
  return {
    max_concurrency = values[1] and tonumber(values[1]) or 0,
    active = values[2] and tonumber(values[2]) or 0,
    next_seq = values[3] and tonumber(values[3]) or 0,
    rate_max = values[4] and tonumber(values[4]) or 0,
    rate_duration = values[5] and tonumber(values[5]) or 0,
    window_start = values[6] and tonumber(values[6]) or 0,
    rate_count = values[7] and tonumber(values[7]) or 0,
    capacity = values[8] and tonumber(values[8]) or 0,
    refill_rate = values[9] and tonumber(values[9]) or 0,
    tokens = values[10] and tonumber(values[10]) or nil,
    last_refill = values[11] and tonumber(values[11]) or nil,
    remainder = values[12] and tonumber(values[12]) or nil,
    held_until = values[13] and tonumber(values[13]) or 0,
  }
end

function groups.write(queue, name, ...)
  redis.call("HSET", hash(queue, name), ...)
end

function groups.write_absent(queue, name, field, value)
  redis.call("HSETNX", hash(queue, name), field, value)
end

function groups.forget(queue, name, ...)
  redis.call("HDEL", hash(queue, name), ...)
end

--- Refill the bucket and remember it; returns the tokens there.
function groups.refill(queue, name, group, now)
  local level, last, remainder = tokens.refill(group, now)
  if level ~= group.tokens or last ~= group.last_refill or remainder ~= group.remainder then
    groups.write(queue, name, "tbTokens", level, "tbLastRefill", last, "tbRefillRemainder", remainder)
    group.tokens, group.last_refill, group.remainder = level, last, remainder
  end
  return level
end

--- Return whether the group's rate window is running, and what is left in it; nil without one.
function groups.window_room(group, now)
  if group.rate_max > 0 and group.rate_duration > 0 and now - group.window_start < group.rate_duration then
    return math.max(group.rate_max - group.rate_count, 0)
  end
  return nil
end

--- Say that a sequence number will never activate.
function groups.skip(queue, name, seq)
  groups.write(queue, name, string.format("skip:%.0f", seq), 1)
end

--- Step over the sequence numbers that will never activate; returns whether there were any.
function groups.advance(queue, name, group)
  local seq, key = group.next_seq, hash(queue, name)
  if seq <= 0 then
    return false
  end
  while redis.call("HDEL", key, string.format("skip:%.0f", seq)) == 1 do
    seq = seq + 1
    if seq - group.next_seq == MOST_SKIPS then
      groups.wake_soon(queue, name)
      break
    end
  end
  if seq == group.next_seq then
    return false
  end
  group.next_seq = seq
  groups.write(queue, name, "nextSeq", seq)
  return true
end

--- Park a job until admission.
function groups.park(queue, name, job_id, score)
  guarded.call("ZADD", groups.parked_key(queue, name), score, job_id)
  redis.call("HSET", queue .. "job:" .. job_id, "state", "group-waiting")
end

--- Note of a job that ran before and is being parked that it gives its slot back: it takes one again when it starts.
function groups.free_slot(queue, name, job_id, active)
  if active > 0 then
    groups.write(queue, name, "active", active - 1)
  end
  redis.call("HSET", queue .. "job:" .. job_id, "slotFreed", 1)
end

--- The rank of a job among the parked.
function groups.park_score(job_id, job)
  local seq = tonumber(job.orderingSeq) or 0
  return seq > 0 and seq or tonumber(job_id) or tonumber(job.timestamp) or 0
end

--- Leave the group alone until a given time.
function groups.hold_until(queue, name, due)
  redis.call("ZADD", queue .. "ratelimited", due, name)
end

--- Note on a group that exists that nothing of it starts until a given time.
function groups.note_hold(queue, name, due)
  if redis.call("EXISTS", hash(queue, name)) == 1 then
    groups.write(queue, name, "heldUntil", string.format("%.0f", due))
  end
end

--- Whether the group is held back at run time. Limits have their own counts; a hold has only this.
function groups.is_held(queue, name, group, now)
  if now >= group.held_until then
    return false
  end
  groups.hold_until(queue, name, group.held_until)
  return true
end

--- Have the next promotion check the group, unless it is being held back.
function groups.wake_soon(queue, name)
  redis.call("ZADD", queue .. "ratelimited", "NX", 0, name)
end

return groups
