--- Readers of a queue's events: a field each, with its position and the end of its lease.

local events = require("events")
local guarded = require("guarded")
local validate = require("validate")

local readers = {}

local function place(id)
  local ms, number = id:match("^(%d+)%-?(%d*)$")
  return tonumber(ms), tonumber(number) or 0
end

local function is_before(one, other)
  local ms, number = place(one)
  local other_ms, other_number = place(other)
  return ms < other_ms or (ms == other_ms and number < other_number)
end

--- Remove readers whose lease has ended; returns the earliest position of the others and the end of the last lease.
local function review(key, now_ms)
  local found = guarded.call("HGETALL", key)
  local slowest, until_ms
  for index = 1, #found, 2 do
    local name, after, ends = found[index], found[index + 1]:match("^(%S+) (%d+)$")
    if name ~= events.SLOWEST and after and tonumber(ends) > now_ms then
      slowest = slowest and is_before(slowest, after) and slowest or after
      until_ms = math.max(until_ms or 0, tonumber(ends))
    elseif name ~= events.SLOWEST then
      redis.call("HDEL", key, name)
    end
  end
  return slowest, until_ms
end

--- Register a reader, or renew its lease. The key expires with the last lease.
function readers.follow(queue, reader, after, lease_ms)
  if not place(after) then
    validate.refuse("followEvents", "'after' is no event's id")
  end
  local key = queue .. events.READERS
  local time = redis.call("TIME")
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  guarded.call("HSET", key, reader, after .. " " .. string.format("%.0f", now_ms + lease_ms))
  local slowest, until_ms = review(key, now_ms)
  redis.call("HSET", key, events.SLOWEST, slowest)
  redis.call("PEXPIREAT", key, string.format("%.0f", until_ms))
end

return readers
