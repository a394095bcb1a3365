--- Takes jobs back from workers that fell silent. `sweep` has now_ms, min_idle_ms, lock_duration_ms, most_stalls,
--- and for the stream also group and broadcast. It may have `limit`, how many entries to look at and list jobs to take
--- back, and `tell(job_id, job, has_failed)`, called for each job that is ready again or failed by a stall too many.

local lists = require("lists")
local failure = require("failure")
local place = require("place")
local record = require("record")
local release = require("release")
local stall = require("stall")
local stream = require("stream")

local reclaim = {}

local MOST_PAGES, PAGE = 100, 100

local function tell(sweep, job_id, job, has_failed)
  if sweep.tell then
    sweep.tell(job_id, job, has_failed)
  end
end

--- Look at one idle entry: drop it, leave it, or run its job again.
local function entry(queue, entry_id, job_id, sweep)
  local now = sweep.now_ms
  local job = job_id and record.load(queue, job_id)
  if job and failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
  elseif job then
    if job.lastActive and not stall.is_silent(queue, job_id, job, sweep) then
      return
    end
    local failed = stall.strike(queue, job_id, job, sweep.most_stalls, now)
    if sweep.broadcast and not failed then
      redis.call("HSET", queue .. "job:" .. job_id, "state", "active")
      return
    elseif not failed then
      stall.reset(queue, job_id)
      stream.push(queue, job_id, job.name)
    end
    tell(sweep, job_id, job, failed)
  end
  stream.settle(queue, sweep.group, entry_id, sweep.broadcast)
end

--- Look at entries idle for too long, page by page; returns how many, and whether there may be more.
function reclaim.entries(queue, consumer, sweep)
  local key, cursor, seen = queue .. "stream", "0-0", 0
  if not redis.call("XPENDING", key, sweep.group, "IDLE", sweep.min_idle_ms, "-", "+", 1)[1] then
    return 0, false
  end
  local limit = sweep.limit or MOST_PAGES * PAGE
  for _ = 1, MOST_PAGES do
    local count = math.min(limit - seen, PAGE)
    local page = redis.call("XAUTOCLAIM", key, sweep.group, consumer, sweep.min_idle_ms, cursor, "COUNT", count)
    for _, claimed in ipairs(page[2]) do
      if claimed then
        entry(queue, claimed[1], stream.field(claimed[2], "jobId"), sweep)
        seen = seen + 1
      end
    end
    cursor = page[1]
    if cursor == "0-0" or seen == limit then
      break
    end
  end
  return seen, cursor ~= "0-0"
end

--- Look at one active list job; returns whether it was taken back.
local function list_job(queue, found, sweep)
  local job_id, job, now = found.id, found.job, sweep.now_ms
  if not job.lastActive or not stall.is_silent(queue, job_id, job, sweep) then
    return false
  end
  lists.leave(queue, job_id)
  if failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
    return true
  end
  redis.call("HSET", queue .. "job:" .. job_id, "lastActive", now)
  local failed = stall.strike(queue, job_id, job, sweep.most_stalls, now)
  if not failed then
    stall.reset(queue, job_id)
    place.ready(queue, job_id, job)
  end
  tell(sweep, job_id, job, failed)
  return true
end

--- Look at one job that was popped, but is not active; returns whether it was taken back.
local function taken_job(queue, found, sweep)
  if found.is_new then
    lists.seen_taken(queue, found.id, sweep.now_ms)
  elseif stall.has_passed(found.since, sweep) then
    place.back(queue, found.id, found.job)
    tell(sweep, found.id, found.job, false)
    return true
  end
  return false
end

--- Take back list jobs whose worker fell silent, and those popped by one that died before it activated them; returns
--- how many, and whether there may be more.
function reclaim.list_jobs(queue, sweep)
  if lists.is_idle(queue) then
    return 0, false
  end
  local limit, reclaimed = sweep.limit or math.huge, 0
  local active, taken = lists.all(queue)
  for index = 1, #active + #taken do
    if reclaimed == limit then
      return reclaimed, true
    end
    local found, take_back = active[index], list_job
    if not found then
      found, take_back = taken[index - #active], taken_job
    end
    reclaimed = reclaimed + (take_back(queue, found, sweep) and 1 or 0)
  end
  return reclaimed, false
end

return reclaim
