--- How a new job joins its group: its sequence number, and the limits it brings along.

local groups = require("groups")
local tokens = require("tokens")

local membership = {}

--- Whether the job can never have the tokens it costs.
function membership.too_expensive(job)
  local cost = job.cost > 0 and job.cost or tokens.DEFAULT_COST
  return job.tb_capacity > 0 and cost > job.tb_capacity
end

--- The fields of the group that the job's limits change.
local function changes(group, job)
  local fields = {}
  local function set(field, value, current)
    if value ~= current then
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
  end
  if not (job.keeps_concurrency and group.max_concurrency > 0) then
    set("maxConcurrency", math.max(job.group_concurrency, 1), group.max_concurrency)
  end
  if group.next_seq <= 0 then
    set("nextSeq", 1)
  end
  if job.group_rate_max > 0 then
    set("rateMax", job.group_rate_max, group.rate_max)
    set("rateDuration", job.group_rate_duration_ms, group.rate_duration)
  end
  if job.tb_capacity > 0 then
    set("tbCapacity", job.tb_capacity, group.capacity)
    set("tbRefillRate", job.tb_refill_rate, group.refill_rate)
    if group.capacity <= 0 then
      set("tbTokens", job.tb_capacity)
      set("tbLastRefill", job.timestamp_ms)
      set("tbRefillRemainder", 0)
    end
  end
  return fields
end

--- Join the group of `job.ordering_key`; returns the job's sequence number.
--- A flow's job may only add limits (`keeps_limits`), and its children keep the concurrency in force.
function membership.join(queue, job)
  local name = job.ordering_key
  local group = groups.load(queue, name)
  local fields = changes(group, job)
  if fields[1] then
    groups.write(queue, name, unpack(fields))
  end
  if job.keeps_limits then
    groups.write_absent(queue, name, "active", 0)
  else
    if job.group_rate_max <= 0 and group.rate_max > 0 then
      groups.forget(queue, name, "rateMax", "rateDuration", "rateWindowStart", "rateCount")
    end
    if job.tb_capacity <= 0 and group.capacity > 0 then
      groups.forget(queue, name, "tbCapacity", "tbRefillRate", "tbTokens", "tbLastRefill", "tbRefillRemainder")
    end
  end
  return redis.call("HINCRBY", queue .. "ordering", name, 1)
end

return membership
