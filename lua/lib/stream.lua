--- The `stream`: ready jobs in order of arrival, and their pending entries in the consumer group.

local record = require("record")

local stream = {}

local PAGE = 1000
local NEIGHBORS = 250
-- Above it a number no longer tells one id from the next, and halving would not end.
local MOST_EXACT = 2 ^ 53

--- Make a job ready; returns its entry's id. What follows `name` goes into the entry.
function stream.push(queue, job_id, name, ...)
  return redis.call("XADD", queue .. "stream", "*", "jobId", job_id, "name", name or "", ...)
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

--- Find the entry of a job near where its record says it was added; nil when it is not there, as after a retry or where
--- the clocks of producers disagree.
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

--- Take the job's entry off the stream; false when it was not found. A long stream is searched to its end only if
--- `thorough`: a million entries take seconds.
function stream.withdraw(queue, group, job_id, thorough)
  local is_short = redis.call("XLEN", queue .. "stream") <= PAGE
  local entry_id = not is_short and find_near(queue, job_id)
    or (is_short or thorough) and find_anywhere(queue, job_id)
  if not entry_id then
    return false
  end
  stream.settle(queue, group, entry_id)
  return true
end

--- Note that a cancelled job's entry was left behind. The worker that reads it drops it, as the job has ended.
function stream.note_stray(queue, job_id)
  redis.call("HSET", queue .. "job:" .. job_id, "strayEntry", 1)
end

--- Remove the entry that a cancelled job left before it runs again: with two entries it would run twice.
function stream.remove_stray(queue, job_id)
  if redis.call("HDEL", queue .. "job:" .. job_id, "strayEntry") == 1 then
    stream.withdraw(queue, "workers", job_id, true)
  end
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

--- Entries the group holds; 0 when there is no such group.
function stream.pending(key, group)
  local summary = redis.pcall("XPENDING", key, group)
  return summary.err and 0 or tonumber(summary[1]) or 0
end

return stream
