--- Places jobs that are not active.

local chunks = require("chunks")
local lists = require("lists")
local record = require("record")
local scheduled = require("scheduled")
local shares = require("shares")
local stream = require("stream")
local withdrawal = require("withdrawal")

local placement = {}

-- How far from an end of the priority list a job takes its place. Further in, it would take 30 ms in a million.
local REACH = 500

local function runs_before(list, index, queue, priority)
  local other = redis.call("LINDEX", list, index)
  local others = withdrawal.read_tombstone(other) or redis.call("HGET", queue .. "job:" .. other, "priority")
  return priority < (tonumber(others) or 0)
end

--- How many jobs of the priority list run later than a job of a priority, and how many before it.
local function find_place(queue, list, priority)
  local length = redis.call("LLEN", list)
  -- Usually it belongs to the very end, the left, which the first comparison finds.
  if length == 0 or not runs_before(list, 0, queue, priority) then
    return 0, length
  end
  local low, high = 1, length
  while low < high do
    local middle = math.floor((low + high) / 2)
    if runs_before(list, middle, queue, priority) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low, length - low
end

local function append_reversed(words, more)
  for index = #more, 1, -1 do
    words[#words + 1] = more[index]
  end
end

--- Enter jobs of one priority into the priority list, which runs from its right end: behind their equals, before all they
--- precede. In the middle of a long list, as only glidemq_promote makes it, they go to the end, as glide-mq puts them all.
local function enlist(queue, job_ids, priority)
  local list = queue .. "priority"
  local later, earlier = find_place(queue, list, priority)
  if later > REACH and earlier > REACH then
    later = 0
  end
  local words = {}
  if later <= earlier then
    for index, job_id in ipairs(job_ids) do
      words[index] = job_id
    end
    append_reversed(words, later > 0 and redis.call("LPOP", list, later) or {})
    chunks.call(words, "LPUSH", list)
  else
    append_reversed(words, job_ids)
    append_reversed(words, earlier > 0 and redis.call("RPOP", list, earlier) or {})
    chunks.call(words, "RPUSH", list)
  end
end

--- How many jobs of a priority may take their place in the priority list, which is kept short: in `scheduled` they wait in
--- the same order, until workers take jobs from the list.
function placement.room(queue, priority)
  local list = queue .. "priority"
  local length = redis.call("LLEN", list)
  if length < 2 * REACH then
    return 2 * REACH - length
  end
  return runs_before(list, -REACH, queue, priority) and REACH or 0
end

--- Whether a job that is ready waits in the priority list.
function placement.is_enlisted(job)
  return record.priority(job) > 0 and job.lifo ~= "1" and not job.share
end

--- Make jobs of one priority ready that wait in the priority list.
function placement.enlist(queue, job_ids, priority)
  if job_ids[1] then
    enlist(queue, job_ids, priority)
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
    enlist(queue, { job_id }, priority)
  else
    stream.push(queue, job_id, job.name)
  end
end

--- Make a job ready before all that are on the stream, behind those of its priority that wait in the list.
function placement.first(queue, job_id, job)
  redis.call("HSET", queue .. "job:" .. job_id, "entry", stream.NONE)
  enlist(queue, { job_id }, record.priority(job))
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
