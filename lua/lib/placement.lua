--- Places jobs that are not active.

local lists = require("lists")
local record = require("record")
local scheduled = require("scheduled")
local shares = require("shares")
local stream = require("stream")
local withdrawal = require("withdrawal")

local placement = {}

local function runs_before(list, index, queue, priority)
  local other = redis.call("LINDEX", list, index)
  local others = withdrawal.read_tombstone(other) or redis.call("HGET", queue .. "job:" .. other, "priority")
  return priority < (tonumber(others) or 0), other
end

--- Enter a job into the priority list, which runs from its right end: behind its equals, before all it precedes.
local function enlist(queue, job_id, priority)
  local list = queue .. "priority"
  local low, high = 0, redis.call("LLEN", list)
  -- Usually it belongs to the very end, the left, which the first comparison finds.
  if high == 0 or not runs_before(list, 0, queue, priority) then
    redis.call("LPUSH", list, job_id)
    return
  end
  local follower
  while low < high do
    local middle = math.floor((low + high) / 2)
    local before, other = runs_before(list, middle, queue, priority)
    if before then
      low = middle + 1
    else
      high, follower = middle, other
    end
  end
  if follower then
    redis.call("LINSERT", list, "BEFORE", follower, job_id)
  else
    redis.call("RPUSH", list, job_id)
  end
end

--- Make a job ready.
function placement.ready(queue, job_id, job)
  local priority = record.priority(job)
  if job.lifo == "1" then
    redis.call("RPUSH", queue .. "lifo", job_id)
  elseif job.share then
    shares.enter(queue, job_id, job.share, priority)
    shares.feed(queue, 0)
  elseif priority > 0 then
    enlist(queue, job_id, priority)
  else
    stream.push(queue, job_id, job.name)
  end
end

--- Make a job ready before all that are on the stream, behind those of its priority that wait in the list.
function placement.first(queue, job_id, job)
  redis.call("HSET", queue .. "job:" .. job_id, "entry", stream.NONE)
  enlist(queue, job_id, record.priority(job))
end

--- Defer a job until a time.
function placement.later(queue, member, job, due)
  scheduled.add(queue, member, record.priority(job), due)
end

--- Give a new job its place; returns the state that goes with it, and its entry if it has one. One with a share moves on by `shares.feed`, to be called
--- once its record has that state.
function placement.new(queue, job_id, job)
  if job.delay_ms > 0 then
    scheduled.add(queue, job_id, job.priority, job.timestamp_ms + job.delay_ms)
    return "delayed"
  elseif job.priority > 0 then
    scheduled.add(queue, job_id, job.priority, 0)
    return "prioritized"
  end
  if job.lifo then
    redis.call("RPUSH", queue .. "lifo", job_id)
  elseif job.share then
    shares.enter(queue, job_id, job.share, 0)
  else
    return "waiting", stream.append(queue, job_id, job.job_name)
  end
  return "waiting"
end

--- Put a job that was popped but never activated back, unless it is on its list already.
function placement.back(queue, job_id, job)
  for _, list in ipairs({ "priority", "lifo" }) do
    if withdrawal.find(queue, list, job_id) then
      lists.forget(queue, job_id)
      return
    end
    withdrawal.leave(queue, list, job_id)
  end
  lists.leave(queue, job_id)
  placement.ready(queue, job_id, job)
end

return placement
