-- Finds records that contradict each other, and repairs them.
local dependencies = require("dependencies")
local jobs = require("jobs")
local places = require("places")

local consistency = {}

local PAGE, GONE = 200, "\0gone"
local SIZES = { zset = "ZCARD", set = "SCARD", list = "LLEN" }
local SETS = { waiting = "work", stalled = "work", scheduled = "scheduled", depends = "depends", running = "locks" }

local function exists(jid)
  return redis.call("EXISTS", "ql:j:" .. jid) == 1
end

local function holds(queue, jid)
  for _, set in ipairs({ "work", "locks", "scheduled", "depends" }) do
    if redis.call("ZSCORE", "ql:q:" .. queue .. "-" .. set, jid) then
      return true
    end
  end
  return false
end

--- Return whether the job's own queue, or any known one, holds a job.
local function is_placed(job)
  if holds(job.queue, job.jid) then
    return true
  end
  for _, queue in ipairs(redis.call("ZRANGE", "ql:queues", 0, -1)) do
    if holds(queue, job.jid) then
      return true
    end
  end
  return false
end

--- A job that no queue holds would never run: it is made ready, or waits for what it depends on.
local function check_job(now, key, resolve)
  local jid = key:sub(6)
  local job = jobs.read(jid)
  if not job or not SETS[job.state] or not job.queue or job.queue == "" or is_placed(job) then
    return 0
  end
  if resolve then
    places.release(job.worker, jid)
    redis.call("HMSET", key, "state", "waiting", "worker", "", "expires", 0)
    dependencies.place(now, job.queue, jid, job.priority, 0)
    places.learn(now, job.queue)
  end
  return 1
end

--- Return a page of a collection's entries, and where the next one begins; nil at the end. A list is read from its end.
local function read_page(key, kind, cursor)
  if kind == "list" then
    local first = tonumber(cursor) or 0
    local entries = redis.call("LRANGE", key, -first - PAGE, -first - 1)
    return entries, #entries == PAGE and first + PAGE or nil
  end
  local reply = redis.call(kind == "zset" and "ZSCAN" or "SSCAN", key, cursor, "COUNT", PAGE)
  local entries = {}
  for index = 1, #reply[2], kind == "zset" and 2 or 1 do
    entries[#entries + 1] = reply[2][index]
  end
  return entries, reply[1] ~= "0" and reply[1] or nil
end

--- Remove entries of a page from a collection: those of these indexes.
local function remove(key, kind, entries, cursor, indexes)
  if kind == "list" then
    -- Marked first: to remove them one by one would read the list once for each.
    for _, index in ipairs(indexes) do
      redis.call("LSET", key, index - 1 - #entries - (tonumber(cursor) or 0), GONE)
    end
    redis.call("LREM", key, -#indexes, GONE)
    return
  end
  for _, index in ipairs(indexes) do
    redis.call(kind == "zset" and "ZREM" or "SREM", key, entries[index])
  end
end

--- Count the entries of a page that are not sound, or remove them. Return where the next page begins (nil at the end),
-- and the page's size.
local function check_page(key, kind, cursor, resolve, is_sound)
  local entries, rest = read_page(key, kind, cursor)
  local wrong = {}
  for index, jid in ipairs(entries) do
    if not is_sound(jid) then
      wrong[#wrong + 1] = index
    end
  end
  if resolve and wrong[1] then
    remove(key, kind, entries, cursor, wrong)
    -- What is left of a list's page is not read again.
    rest = rest and kind == "list" and rest - #wrong or rest
  end
  return #wrong, rest and tostring(rest), #entries
end

--- Whether a job still has to end before those that wait for it.
local function is_live(jid)
  local state = redis.call("HGET", "ql:j:" .. jid, "state")
  return state and state ~= "complete"
end

local function is_failed(jid)
  return redis.call("HGET", "ql:j:" .. jid, "state") == "failed"
end

--- Have a job run whose last dependency is gone.
local function free(now, key, resolve)
  local jid = key:sub(6, -#"-dependencies" - 1)
  local job = resolve and redis.call("SCARD", key) == 0 and jobs.read(jid)
  if job and job.state == "depends" then
    redis.call("ZREM", "ql:q:" .. job.queue .. "-depends", jid)
    redis.call("HSET", "ql:j:" .. jid, "state", "waiting")
    places.work(job.queue, jid, job.priority, now)
  end
end

--- Return the problem of inconsistent entries of a collection, and the function that repairs one; nil for other keys.
local function rule(key, kind)
  if kind == "set" and key:find("^ql:j:.*%-dependencies$") then
    return "dependencies on gone jobs", is_live
  elseif kind == "set" and key:find("^ql:j:.*%-dependents$") then
    return "dependents that are gone", exists
  elseif kind == "list" and key:find("^ql:f:") then
    return "failures of jobs that did not fail", is_failed
  elseif kind == "zset" and key:find("^ql:t:") then
    return "tags of gone jobs", exists
  elseif kind == "zset" and key:find("^ql:q:.*%-locks$") then
    return "locks without jobs", exists
  elseif kind == "zset" and (key:find("^ql:q:.*%-work$") or key:find("^ql:q:.*%-scheduled$")) then
    return "places of gone jobs", exists
  elseif kind == "zset" and (key:find("^ql:q:.*%-depends$") or key:find("^ql:w:.*:jobs$")) then
    return "places of gone jobs", exists
  end
end

--- Check one key, or with a `cursor` one page of a collection. Return the kind of problem, how often it occurs, and
-- where the next page begins (nil at the end), and the page's size. A large collection is not read without a cursor.
function consistency.check(now, key, resolve, cursor)
  local kind = redis.call("TYPE", key).ok
  if kind == "hash" and key:sub(1, 5) == "ql:j:" then
    return "jobs in no queue", check_job(now, key, resolve)
  end
  local wrong, is_sound = rule(key, kind)
  if not wrong then
    return nil, 0
  elseif not cursor and redis.call(SIZES[kind], key) > PAGE then
    return wrong, 0, "0"
  end
  local count, rest, size = check_page(key, kind, cursor or "0", resolve, is_sound)
  if is_sound == is_live and resolve and count > 0 then
    free(now, key, resolve)
  end
  return wrong, count, rest, size
end

--- Add the problems of a page of a collection to `found`. Return where the next page begins (nil at the end), and this one's size.
function consistency.add(found, now, key, resolve, cursor)
  local wrong, count, rest, size = consistency.check(now, key, resolve, cursor)
  if count > 0 then
    found[wrong] = (found[wrong] or 0) + count
  end
  return rest, size or 0
end

return consistency
