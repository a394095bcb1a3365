--- Jobs of ChasquiMQ's stream: published, taken off, and split from the members that wait for their time.

local jobs = {}

--- Add a job to the stream.
function jobs.publish(stream_key, max_length, name, envelope)
  local command = { "XADD", stream_key, "MAXLEN", "~", max_length, "*", "d", envelope }
  if name ~= "" then
    command[9], command[10] = "n", name
  end
  return redis.call(unpack(command))
end

--- Take a delivered job off the stream. False when another worker was faster.
function jobs.take(stream_key, group, entry_id)
  if redis.call("XACK", stream_key, group, entry_id) == 0 then
    return false
  end
  redis.call("XDEL", stream_key, entry_id)
  return true
end

--- Split a delayed member into name and envelope. Nothing when its length prefix does not fit.
function jobs.split(member)
  if #member < 4 then
    return nil
  end
  local first, second, third, fourth = member:byte(1, 4)
  local finish = 4 + first + second * 256 + third * 65536 + fourth * 16777216
  if finish > #member then
    return nil
  end
  return member:sub(5, finish), member:sub(finish + 1)
end

--- The server's clock, in epoch ms. Workers' clocks may differ.
function jobs.now_ms()
  local time = redis.call("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

--- Add an entry to the dead-letter queue.
function jobs.bury(dead_letters_key, max_length, letter)
  local command = { "XADD", dead_letters_key, "MAXLEN", "~", max_length, "*", "d", letter.envelope }
  for _, field in ipairs({ "n", "source_id", "reason", "detail" }) do
    local value = letter[field]
    if value and value ~= "" then
      command[#command + 1] = field
      command[#command + 1] = value
    end
  end
  return redis.call(unpack(command))
end

return jobs
