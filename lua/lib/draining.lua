--- Removes jobs that have not started. Each of these takes an optional limit of jobs.

local purge = require("purge")
local record = require("record")
local release = require("release")
local shares = require("shares")
local stream = require("stream")

local draining = {}

local PAGE = 1000

--- Remove jobs; those of a group no longer hold up the ones behind them.
local function remove(queue, job_ids)
  local grouped = {}
  for _, job_id in ipairs(job_ids) do
    local job = record.load(queue, job_id)
    if job and job.groupKey then
      grouped[#grouped + 1] = job
    end
  end
  purge.jobs(queue, job_ids)
  for _, job in ipairs(grouped) do
    release.forfeit(queue, job, 0)
  end
end

--- Ids of those of a page's entries that the group holds.
local function pending(queue, group, page)
  local held = {}
  local found = redis.pcall("XPENDING", queue .. "stream", group, page[1][1], page[#page][1], #page)
  for _, entry in ipairs(found.err and {} or found) do
    held[entry[1]] = true
  end
  return held
end

--- Remove the jobs of all entries that no consumer holds; returns how many.
function draining.stream(queue, group, limit)
  local entry_ids, job_ids = {}, {}
  local function take(entry_id, job_id)
    entry_ids[#entry_ids + 1] = entry_id
    if job_id and not stream.is_stray(queue, job_id, entry_id) then
      job_ids[#job_ids + 1] = job_id
    end
  end
  stream.pages(queue .. "stream", math.min(limit or PAGE, PAGE), function(page)
    local held = pending(queue, group, page)
    for _, entry in ipairs(page) do
      if #entry_ids == limit then
        return true
      elseif not held[entry[1]] then
        take(entry[1], stream.field(entry[2], "jobId"))
      end
    end
    return #entry_ids == limit
  end)
  for first = 1, #entry_ids, PAGE do
    redis.call("XDEL", queue .. "stream", unpack(entry_ids, first, math.min(first + PAGE - 1, #entry_ids)))
  end
  remove(queue, job_ids)
  return #job_ids
end

--- Remove scheduled jobs, those first that are due first; returns how many members there were.
function draining.scheduled(queue, limit)
  local members = redis.call("ZRANGE", queue .. "scheduled", 0, (limit or 0) - 1)
  purge.members(queue .. "scheduled", members)
  remove(queue, members)
  return #members
end

--- Remove jobs that wait in shares, in their turns; returns how many.
function draining.shares(queue, limit)
  local removed = 0
  repeat
    local job_ids = shares.take(queue, (limit or PAGE) - (limit and removed or 0))
    remove(queue, job_ids)
    removed = removed + #job_ids
  until not job_ids[1] or removed == limit
  return removed
end

--- Remove jobs of a list, those first that would start first; returns how many.
function draining.list(queue, key, limit)
  local job_ids = redis.call("LRANGE", key, limit and -limit or 0, -1)
  redis.call("LTRIM", key, 0, -1 - #job_ids)
  remove(queue, job_ids)
  return #job_ids
end

return draining
