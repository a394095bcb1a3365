--- Repeatable jobs: an index of when each is due for evaluation, their last jobs, and their history.

local guarded = require("guarded")
local numbers = require("numbers")
local overdue = require("overdue")
local record = require("record")
local revocation = require("revocation")

local schedulers = {}

local HISTORY = 50
local DAY_S = 86400
local HISTORY_S, HISTORY_AFTER_S = 400 * DAY_S, 30 * DAY_S
local MOST_SEARCHED = 1000

--- Whether the index has to be compared with the entries, which other clients write without it.
function schedulers.needs_full_look(queue)
  local entries = redis.call("HLEN", queue .. "schedulers")
  local indexed = guarded.call("ZCARD", queue .. "schedulers:due")
  if entries == 0 and indexed == 0 then
    return false
  end
  return entries ~= indexed or redis.call("EXISTS", queue .. "schedulers:looked") == 0
end

--- When the entries need their next evaluation, epoch ms; 0 for at once, -1 for never.
function schedulers.next_look(queue)
  if schedulers.needs_full_look(queue) then
    return 0
  end
  local first = guarded.call("ZRANGE", queue .. "schedulers:due", 0, 0, "WITHSCORES")
  return first[2] and math.max(0, tonumber(first[2])) or -1
end

--- Record the outcome of a run.
function schedulers.note(queue, name, due_ms, now_ms, job_id, outcome)
  local key = queue .. "schedulers:history:" .. name
  guarded.call("LPUSH", key, cjson.encode({ due_ms, now_ms, job_id, outcome }))
  redis.call("LTRIM", key, 0, HISTORY - 1)
  redis.call("EXPIRE", key, HISTORY_S)
end

--- Store an entry and when it is due for evaluation; an empty entry stays as it is, `drop` goes.
function schedulers.put(queue, name, entry, look_ms)
  local entries, due = queue .. "schedulers", queue .. "schedulers:due"
  if entry == "drop" then
    guarded.call("ZREM", due, name)
    redis.call("EXPIRE", queue .. "schedulers:history:" .. name, HISTORY_AFTER_S)
    return redis.call("HDEL", entries, name)
  elseif entry ~= "" then
    redis.call("HSET", entries, name, entry)
  end
  guarded.call("ZADD", due, look_ms, name)
  return 1
end

--- Return the state of a job: `open`, `ended` or `gone`, and when it ended. One that has expired ended then, whether a
--- worker has read it since or not.
function schedulers.fate(queue, job_id, now)
  local job = record.load(queue, job_id)
  if not job or not job.state then
    return "gone", 0
  elseif record.has_ended(job) then
    return "ended", tonumber(redis.call("HGET", queue .. "job:" .. job_id, "finishedOn") or nil) or 0
  elseif overdue.is(job, now) then
    return "ended", numbers.finite(job.expireAt)
  end
  return "open", 0
end

--- Whether a run has to wait for the job of the one before. One that must be replaced is revoked instead.
function schedulers.holds_back(queue, run, now_ms)
  if run.previous == "" or run.overlap == "allow" or schedulers.fate(queue, run.previous, now_ms) ~= "open" then
    return false
  elseif run.overlap == "replace" then
    revocation.revoke(queue, run.previous, now_ms, "workers")
    return false
  end
  return true
end

local function is_of(queue, job_id, name)
  return redis.call("HGET", queue .. "job:" .. job_id, "schedulerName") == name
end

--- Return the state of the job of a scheduler whose entry does not name it: `open` unless all unfinished jobs were
--- read, and none belongs to that scheduler.
local function searched(queue, name)
  local waiting = redis.call("XRANGE", queue .. "stream", "-", "+", "COUNT", MOST_SEARCHED)
  local later = redis.call("ZRANGE", queue .. "scheduled", 0, MOST_SEARCHED - 1)
  local suspended = redis.call("ZRANGE", queue .. "suspended", 0, MOST_SEARCHED - 1)
  local lists = {}
  for _, list in ipairs({ "lifo", "priority" }) do
    lists[#lists + 1] = redis.call("LRANGE", queue .. list, 0, MOST_SEARCHED - 1)
  end
  if (tonumber(redis.call("GET", queue .. "list-active")) or 0) > 0 or #waiting == MOST_SEARCHED then
    return "open"
  end
  for _, entry in ipairs(waiting) do
    for index = 1, #entry[2], 2 do
      if entry[2][index] == "jobId" and is_of(queue, entry[2][index + 1], name) then
        return "open"
      end
    end
  end
  for _, found in ipairs({ later, suspended, lists[1], lists[2] }) do
    if #found == MOST_SEARCHED then
      return "open"
    end
    for _, job_id in ipairs(found) do
      if is_of(queue, job_id, name) then
        return "open"
      end
    end
  end
  return "gone"
end

--- Return the state of the job that an entry waits for, and when it ended; empty without one.
function schedulers.awaited(queue, name, text, now)
  local readable, entry = pcall(cjson.decode, text)
  if not readable or type(entry) ~= "table" then
    return "", 0
  end
  local own = type(entry.oq) == "table" and entry.oq or {}
  if type(own.job) == "string" and own.job ~= "" then
    return schedulers.fate(queue, own.job, now)
  elseif entry.repeatAfterComplete and entry.nextRun == 0 and not own.paused then
    return searched(queue, name), 0
  end
  return "", 0
end

return schedulers
