--- Takes single jobs out of the lists of ready ones, `lifo` and `priority`, and out of shares, however long these are.

local guarded = require("guarded")
local record = require("record")
local shares = require("shares")
local stream = require("stream")

local withdrawal = {}

-- LPOS compares some 30 elements in a microsecond.
local NEAR = 20000
local NEIGHBORS = 250
-- A tombstone replaces a job: no job has such an id, so a client that pops it finds no record, and drops it. It keeps
-- the priority, by which other jobs are placed in the list.
local TOMBSTONE = "{removed}"

--- The priority of the job that a tombstone replaces; nil for a job id.
function withdrawal.read_tombstone(element)
  return element:match("^" .. TOMBSTONE .. "(%d+)$")
end

--- The index of a LIFO job near where its record says it was added; nil when it is not there, as after a retry.
local function bisect(queue, key, job_id, length)
  local time, number = record.arrival(queue, job_id), tonumber(job_id)
  if not time then
    return nil
  end
  local low, high = 0, length
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = redis.call("LINDEX", key, middle)
    local other_time, other_number = record.arrival(queue, other, 0), tonumber(other)
    if other_time < time or other_time == time and number and other_number and other_number < number then
      low = middle + 1
    else
      high = middle
    end
  end
  local first = math.max(0, low - NEIGHBORS)
  for index, other in ipairs(redis.call("LRANGE", key, first, low + NEIGHBORS)) do
    if other == job_id then
      return first + index - 1
    end
  end
end

--- Where a job waits on a list, from 0; nil when it does not, or far from both ends of a list that is in no order.
function withdrawal.find(queue, list, job_id)
  local key = queue .. list
  local length = redis.call("LLEN", key)
  return redis.call("LPOS", key, job_id, "MAXLEN", NEAR)
    or length > NEAR and redis.call("LPOS", key, job_id, "RANK", -1, "MAXLEN", NEAR)
    or length > 2 * NEAR and list == "lifo" and bisect(queue, key, job_id, length)
    or nil
end

--- Note that a job may have been left in the middle of a long list, where a search would take 15 ms in a million: a worker
--- that pops it starts it only if it waits. Returns false if the list was searched to its end.
function withdrawal.leave(queue, list, job_id)
  if redis.call("LLEN", queue .. list) <= 2 * NEAR then
    return false
  end
  redis.call("HSET", queue .. "job:" .. job_id, "strayElement", 1)
  return true
end

local function list_of(job)
  return job.lifo == "1" and "lifo" or record.priority(job) > 0 and "priority"
end

--- Take a job off the list or share where it may wait; returns whether it was found. Far from both ends a tombstone takes its
--- place: to close a gap there takes as long as to search the whole list.
function withdrawal.remove(queue, job_id, job)
  if job.share and shares.remove(queue, job_id, job.share) then
    return true
  end
  local list = list_of(job)
  local index = list and withdrawal.find(queue, list, job_id)
  if not index then
    return false
  end
  local key = queue .. list
  if index < NEAR then
    redis.call("LREM", key, 1, job_id)
  elseif redis.call("LLEN", key) - index <= NEAR then
    redis.call("LREM", key, -1, job_id)
  else
    redis.call("LSET", key, index, string.format("%s%.0f", TOMBSTONE, record.priority(job)))
  end
  return true
end

--- Take a waiting job from wherever it is ready: a list, a share, or the stream, unless `group` is empty; returns whether it
--- was found.
function withdrawal.remove_ready(queue, group, job_id, job)
  if withdrawal.remove(queue, job_id, job) then
    return true
  end
  return job.lifo ~= "1" and group ~= "" and stream.remove(queue, group, job_id, job)
end

--- As `remove` for a job that keeps its record, which may also be left in the middle of a list; false when it is in none.
function withdrawal.withdraw(queue, job_id, job)
  if withdrawal.remove(queue, job_id, job) then
    return true
  end
  local list = list_of(job)
  local is_taken = list and guarded.call("ZSCORE", queue .. "list-active:jobs", job_id)
  return list and not is_taken and withdrawal.leave(queue, list, job_id)
end

return withdrawal
