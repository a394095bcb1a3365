--- Takes stalled jobs back. `sweep` has now_ms, min_idle_ms, lock_duration_ms, most_stalls,
--- and for the stream also group and broadcast. It may have `limit`, how many entries to inspect and list jobs to take
--- back, and `notify(job_id, job, has_failed, consumer)`, called for each job that is ready again or failed by a stall too many,
--- with the consumer that had it, if known.

local failure = require("failure")
local lists = require("lists")
local placement = require("placement")
local record = require("record")
local release = require("release")
local stalled = require("stalled")
local stream = require("stream")

local reclaim = {}

local MOST_PAGES, PAGE = 100, 100

local function notify(sweep, job_id, job, has_failed, consumer)
  if sweep.notify then
    sweep.notify(job_id, job, has_failed, consumer)
  end
end

--- Inspect one idle entry of a consumer: drop it, leave it, or run its job again. Returns whether it was left.
local function entry(queue, entry_id, job_id, whose, sweep)
  local now = sweep.now_ms
  local job = job_id and record.load(queue, job_id)
  if job and stream.is_stray(queue, job_id, entry_id) then
    job = nil
  end
  if job and failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
  elseif job then
    if job.lastActive and not stalled.is_silent(queue, job_id, job, sweep) then
      return true
    end
    local failed = stalled.strike(queue, job_id, job, sweep.most_stalls, now)
    if sweep.broadcast and not failed then
      redis.call("HSET", queue .. "job:" .. job_id, "state", "active")
      return false
    elseif not failed then
      stalled.reset(queue, job_id, job, now)
      stream.push(queue, job_id, job.name)
    end
    notify(sweep, job_id, job, failed, whose)
  end
  stream.settle(queue, sweep.group, entry_id, sweep.broadcast)
  return false
end

--- Return the consumers of idle entries from the cursor on, by entry.
local function owners(key, cursor, count, sweep)
  local owner = {}
  for _, pending in ipairs(redis.call("XPENDING", key, sweep.group, "IDLE", sweep.min_idle_ms, cursor, "+", count)) do
    owner[pending[1]] = pending[2]
  end
  return owner
end

--- Claim a page of idle entries and inspect each. An entry whose job is still running is returned to its consumer: a worker
--- considers entries that it finds among its own as lost, and starts them. Returns the next cursor, and how many were seen.
local function look_at_page(queue, key, consumer, cursor, count, sweep)
  local owner = owners(key, cursor, count, sweep)
  local page = redis.call("XAUTOCLAIM", key, sweep.group, consumer, sweep.min_idle_ms, cursor, "COUNT", count)
  local seen = 0
  for _, claimed in ipairs(page[2]) do
    if claimed then
      local entry_id = claimed[1]
      local whose = owner[entry_id]
      if entry(queue, entry_id, stream.field(claimed[2], "jobId"), whose, sweep) and whose and whose ~= consumer then
        redis.call("XCLAIM", key, sweep.group, whose, 0, entry_id, "JUSTID")
      end
      seen = seen + 1
    end
  end
  return page[1], seen
end

--- Inspect entries idle for too long, page by page; returns how many, and whether there may be more.
function reclaim.entries(queue, consumer, sweep)
  local key, cursor, seen = queue .. "stream", "0-0", 0
  if not redis.call("XPENDING", key, sweep.group, "IDLE", sweep.min_idle_ms, "-", "+", 1)[1] then
    return 0, false
  end
  local limit = sweep.limit or MOST_PAGES * PAGE
  for _ = 1, MOST_PAGES do
    local looked
    cursor, looked = look_at_page(queue, key, consumer, cursor, math.min(limit - seen, PAGE), sweep)
    seen = seen + looked
    if cursor == "0-0" or seen == limit then
      break
    end
  end
  return seen, cursor ~= "0-0"
end

--- Inspect one active list job; returns whether it was taken back.
local function list_job(queue, found, sweep)
  local job_id, job, now = found.id, found.job, sweep.now_ms
  if not job.lastActive or not stalled.is_silent(queue, job_id, job, sweep) then
    return false
  end
  lists.leave(queue, job_id)
  if failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
    return true
  end
  redis.call("HSET", queue .. "job:" .. job_id, "lastActive", now)
  local failed = stalled.strike(queue, job_id, job, sweep.most_stalls, now)
  if not failed then
    stalled.reset(queue, job_id, job, now)
    placement.ready(queue, job_id, job)
  end
  notify(sweep, job_id, job, failed)
  return true
end

--- Inspect one job that was popped, but is not active; returns whether it was taken back.
local function taken_job(queue, found, sweep)
  if found.is_new then
    lists.seen_taken(queue, found.id, sweep.now_ms)
  elseif stalled.has_passed(found.since, sweep) then
    placement.back(queue, found.id, found.job)
    notify(sweep, found.id, found.job, false)
    return true
  end
  return false
end

--- Take back stalled list jobs, and those popped by one that died before it activated them; returns
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
