--- The `stream`: ready jobs in order of arrival, and their pending entries in the consumer group.

local record = require("record")

-- The `entry` of a job that waits in a list although its options don't say so.
local stream = { NONE = "" }

local PAGE = 1000
local NEIGHBORS = 250
-- Above it a number no longer tells one id from the next, and halving would not end.
local MOST_EXACT = 2 ^ 53

--- Append an entry; returns its id. What follows `name` goes into the entry.
function stream.append(queue, job_id, name, ...)
  return redis.call("XADD", queue .. "stream", "*", "jobId", job_id, "name", name or "", ...)
end

--- Make a job ready; returns its entry's id. The record keeps it as `entry`, by which the job is found again. What follows
--- `name` goes into the record.
function stream.push(queue, job_id, name, ...)
  local entry_id = stream.append(queue, job_id, name)
  redis.call("HSET", queue .. "job:" .. job_id, "entry", entry_id, ...)
  return entry_id
end

--- The value of one field of an entry; nil when absent.
function stream.field(fields, name)
  if fields[1] == name then
    return fields[2]
  end
  for index = 1, #fields, 2 do
    if fields[index] == name then
      return fields[index + 1]
    end
  end
  return nil
end

--- Acknowledge an entry, and remove it from the stream unless other groups read it, too.
function stream.settle(queue, group, entry_id, broadcast)
  if entry_id == "" or group == "" then
    return
  end
  redis.call("XACK", queue .. "stream", group, entry_id)
  if not broadcast then
    redis.call("XDEL", queue .. "stream", entry_id)
  end
end

--- Call `visit(entries)` for each page of `size` entries, oldest first, until it returns true.
function stream.pages(key, size, visit)
  local from = "-"
  repeat
    local page = redis.call("XRANGE", key, from, "+", "COUNT", size)
    if page[1] and visit(page) then
      return
    end
    from = page[1] and "(" .. page[#page][1]
  until #page < size
end

--- Call `visit(entry_id, fields)` for each entry, oldest first, until it returns true.
function stream.walk(key, visit)
  stream.pages(key, PAGE, function(page)
    for _, entry in ipairs(page) do
      if visit(entry[1], entry[2]) then
        return true
      end
    end
  end)
end

local function precedes_number(one, other)
  return #one < #other or #one == #other and one < other
end

--- Whether an entry is older than another. Compares digits: an id may exceed the numbers that a double holds.
function stream.precedes(entry_id, other_id)
  local time, number = entry_id:match("^(%d+)%-(%d+)$")
  local other_time, other_number = other_id:match("^(%d+)%-(%d+)$")
  if not time or not other_time then
    return false
  elseif time == other_time then
    return precedes_number(number, other_number)
  end
  return precedes_number(time, other_time)
end

local function millisecond_of(key, command, from, to)
  local entry = redis.call(command, key, from, to, "COUNT", 1)[1]
  return entry and tonumber(entry[1]:match("^%d+")) or 0
end

--- The lowest id between two, written by `format`, from which on no entry precedes what is searched.
local function bisect(key, precedes, low, high, format)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call("XRANGE", key, string.format(format, middle), "+", "COUNT", 1)[1]
    if entry and precedes(entry) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function find_in(entries, job_id)
  for _, entry in ipairs(entries) do
    if stream.field(entry[2], "jobId") == job_id then
      return entry[1]
    end
  end
end

--- Find the entry of a job near where its record says it was added; nil when it is not there, as after a retry, or where
--- an older job was promoted or the clocks of producers disagree.
local function find_near(queue, job_id)
  local key, time, number = queue .. "stream", record.arrival(queue, job_id), tonumber(job_id)
  -- Whether an entry precedes the job's: by time, and within a bulk of one time by automatic id.
  local function precedes(entry)
    local other_id = stream.field(entry[2], "jobId") or ""
    local other_time = record.arrival(queue, other_id, entry[1]:match("^%d+"))
    if other_time == time then
      local other_number = tonumber(other_id)
      return number ~= nil and other_number ~= nil and other_number < number
    end
    return other_time < time
  end
  local newest = millisecond_of(key, "XREVRANGE", "+", "-")
  if not time or newest >= MOST_EXACT then
    return nil
  end
  local millisecond = bisect(key, precedes, millisecond_of(key, "XRANGE", "-", "+"), newest, "%.0f")
  local from = string.format("%.0f", millisecond)
  local last = redis.call("XREVRANGE", key, from, from, "COUNT", 1)[1]
  local last_sequence = last and tonumber(last[1]:match("%-(%d+)$"))
  if last and last_sequence < MOST_EXACT then
    local sequence = bisect(key, precedes, 0, last_sequence, from .. "-%.0f")
    from = string.format("%s-%.0f", from, sequence)
  end
  return find_in(redis.call("XRANGE", key, from, "+", "COUNT", NEIGHBORS), job_id)
    or find_in(redis.call("XREVRANGE", key, from, "-", "COUNT", NEIGHBORS), job_id)
end

local function find_anywhere(queue, job_id)
  local found
  stream.walk(queue .. "stream", function(entry_id, fields)
    found = stream.field(fields, "jobId") == job_id and entry_id or nil
    return found ~= nil
  end)
  return found
end

--- The entry that a job's record names, if it is the job's: another library may have made it ready since.
local function find_named(queue, job_id, entry_id)
  local found = entry_id and redis.pcall("XRANGE", queue .. "stream", entry_id, entry_id) or {}
  return found[1] and find_in(found, job_id)
end

--- Take the entry of a loaded job off the stream; false when it was not found. The entry of a job that another library
--- made ready may be anywhere: it is searched where the job's time says, and a long stream is not walked, for that holds
--- the server for a second in a million entries.
function stream.remove(queue, group, job_id, job)
  local entry_id = find_named(queue, job_id, job.entry)
  if not entry_id and redis.call("XLEN", queue .. "stream") <= PAGE then
    entry_id = find_anywhere(queue, job_id)
  elseif not entry_id then
    entry_id = find_near(queue, job_id)
  end
  if not entry_id then
    return false
  end
  stream.settle(queue, group, entry_id)
  return true
end

--- Have no entry count that the job has by now: the worker that reads one drops it.
function stream.disown(queue, job_id)
  local last = redis.call("XREVRANGE", queue .. "stream", "+", "-", "COUNT", 1)[1]
  if last then
    redis.call("HSET", queue .. "job:" .. job_id, "strayEntry", last[1])
  end
end

--- Whether an entry of a job was disowned. `newest` is what the record says, if it is known.
function stream.is_stray(queue, job_id, entry_id, newest)
  newest = newest or redis.call("HGET", queue .. "job:" .. job_id, "strayEntry")
  return newest and (entry_id == newest or stream.precedes(entry_id, newest))
end

--- Disown the entry that a cancelled job left before it runs again: with two entries it would run twice. Earlier releases
--- noted only that there is one.
function stream.disown_left(queue, job_id)
  if redis.call("HEXISTS", queue .. "job:" .. job_id, "strayEntry") == 1 then
    stream.disown(queue, job_id)
  end
end

--- Take a waiting job off the stream: remove its entry, or disown it where a long stream does not show it. False when the
--- job is not there.
function stream.withdraw(queue, group, job_id, job)
  if stream.remove(queue, group, job_id, job) then
    return true
  end
  local is_listed = job.lifo == "1" or record.priority(job) > 0 or job.entry == stream.NONE
  if is_listed or redis.call("XLEN", queue .. "stream") <= PAGE then
    return false
  end
  stream.disown(queue, job_id)
  return true
end

--- The id of the last entry that the group was given.
function stream.delivered(queue, group)
  local groups = redis.pcall("XINFO", "GROUPS", queue .. "stream")
  for _, flat in ipairs(groups.err and {} or groups) do
    if stream.field(flat, "name") == group then
      return stream.field(flat, "last-delivered-id")
    end
  end
  return "0-0"
end

--- Whether a consumer of the group holds an entry.
function stream.is_held(key, group, entry_id)
  local found = redis.pcall("XPENDING", key, group, entry_id, entry_id, 1)
  return not found.err and found[1] ~= nil
end

--- Entries the group holds; 0 when there is no such group.
function stream.pending(key, group)
  local summary = redis.pcall("XPENDING", key, group)
  return summary.err and 0 or tonumber(summary[1]) or 0
end

return stream
