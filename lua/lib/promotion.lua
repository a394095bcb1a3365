--- Makes delayed and prioritized jobs ready when their time has come.

local events = require("events")
local failure = require("failure")
local groups = require("groups")
local placement = require("placement")
local record = require("record")
local release = require("release")
local scheduled = require("scheduled")
local stream = require("stream")

local promotion = {}

local MOST_GROUPS = 100
-- A worker may have started a job that was set aside behind its back; it does not run a second time.
local UNDER_WAY = { active = true, completed = true, failed = true }

--- Promote one member: a job id, or `id||group` for the retry of one consumer group of a broadcast.
local function promote(queue, member, now)
  local job_id, retry_group = member:match("^(.-)||(.*)$")
  job_id = job_id or member
  local job = record.load(queue, job_id)
  if not job or (UNDER_WAY[job.state] and not retry_group) then
    return
  elseif failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
    return
  end
  redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting")
  if retry_group then
    stream.append(queue, job_id, job.name, "retryGroup", retry_group)
  else
    placement.ready(queue, job_id, job)
  end
  events.emit(queue, "promoted", job_id)
end

--- Promote what is due in every priority band, at most `most` members; returns how many that were.
function promotion.due(queue, now, most)
  local key = queue .. "scheduled"
  local consumed = 0
  local band = scheduled.first(key)
  while band and consumed < most do
    local from, to = scheduled.bound(band, 0), scheduled.bound(band, now)
    local members = redis.call("ZRANGE", key, from, to, "BYSCORE", "LIMIT", 0, most - consumed)
    if members[1] then
      redis.call("ZREM", key, unpack(members))
    end
    for _, member in ipairs(members) do
      promote(queue, member, now)
    end
    consumed = consumed + #members
    band = scheduled.first(key, band + 1)
  end
  return consumed
end

--- Promote jobs of groups whose rate limit has passed; returns how many became ready. After `most` the remaining groups
--- stay due.
function promotion.limited(queue, now, most)
  local key, moved = queue .. "ratelimited", 0
  local now_text = string.format("%.0f", now)
  for _, name in ipairs(redis.call("ZRANGE", key, 0, now_text, "BYSCORE", "LIMIT", 0, MOST_GROUPS)) do
    if most and moved >= most then
      break
    end
    redis.call("ZREM", key, name)
    moved = moved + release.promote(queue, name, groups.load(queue, name), now)
  end
  return moved
end

--- When the next delayed job or limited group is due, possibly past; -1 when nothing waits.
function promotion.next_due(scheduled_key, ratelimited_key)
  local earliest
  local band, due = scheduled.first(scheduled_key)
  while band do
    earliest = math.min(earliest or due, due)
    band, due = scheduled.first(scheduled_key, band + 1)
  end
  local group = redis.call("ZRANGE", ratelimited_key, 0, 0, "WITHSCORES")
  if group[2] then
    earliest = math.min(earliest or math.huge, tonumber(group[2]))
  end
  return earliest or -1
end

return promotion
