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

--- Jobs that are about to enter the priority list: many of one priority take one place.
local function flush(queue, enlisted)
  placement.enlist(queue, enlisted.ids, enlisted.priority)
  enlisted.ids, enlisted.priority = {}, nil
end

local function enter(queue, enlisted, job_id, priority)
  if enlisted.priority ~= priority then
    flush(queue, enlisted)
  end
  enlisted.ids[#enlisted.ids + 1], enlisted.priority = job_id, priority
end

--- Promote one member: a job id, or `id||group` for the retry of one consumer group of a broadcast.
local function promote(queue, member, now, enlisted)
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
  elseif placement.is_enlisted(job) then
    enter(queue, enlisted, job_id, record.priority(job))
  else
    placement.ready(queue, job_id, job)
  end
  events.emit(queue, "promoted", job_id)
end

--- Promote what is due in every priority band, at most `most` members; returns how many that were. With `keeps_short` jobs
--- for which the priority list has no room stay where they are.
function promotion.due(queue, now, most, keeps_short)
  local key = queue .. "scheduled"
  local consumed, enlisted = 0, { ids = {} }
  local band = scheduled.first(key)
  while band and consumed < most do
    local from, to = scheduled.bound(band, 0), scheduled.bound(band, now)
    local room = most - consumed
    if keeps_short and band > 0 then
      room = math.min(room, placement.room(queue, band))
    end
    if room == 0 then
      break
    end
    local members = redis.call("ZRANGE", key, from, to, "BYSCORE", "LIMIT", 0, room)
    if members[1] then
      redis.call("ZREM", key, unpack(members))
    end
    for _, member in ipairs(members) do
      promote(queue, member, now, enlisted)
    end
    flush(queue, enlisted)
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

--- When the next delayed job or limited group is due, possibly past; -1 when nothing waits. With `now`, jobs of `queue` that
--- are due and have no room in the priority list don't count: who takes jobs from it looks for them.
function promotion.next_due(scheduled_key, ratelimited_key, queue, now)
  local earliest
  local band, due = scheduled.first(scheduled_key)
  while band do
    if now and band > 0 and due <= now and placement.room(queue, band) == 0 then
      due = scheduled.first_after(scheduled_key, band, now)
    end
    earliest = math.min(earliest or math.huge, due or math.huge)
    band, due = scheduled.first(scheduled_key, band + 1)
  end
  local group = redis.call("ZRANGE", ratelimited_key, 0, 0, "WITHSCORES")
  if group[2] then
    earliest = math.min(earliest or math.huge, tonumber(group[2]))
  end
  return earliest ~= math.huge and earliest or -1
end

return promotion
