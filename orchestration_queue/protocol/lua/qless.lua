#!lua name=qless
-- Generated from lua/qless/; do not edit. Regenerate with: python tools/bundle_lua.py

local modules = {}

local function require(name)
  return modules[name]
end

--- Return the words from a place on.
local function rest(words, first)
  local list = {}
  for index = first, #words do
    list[index - first + 1] = words[index]
  end
  return list
end

local REVISION = "10"

modules.calls = (function()
-- What a call says: its words checked, and refusals in the form `Put(): Arg "jid" missing`.
local calls = {}

function calls.refuse(command, why)
  error(command .. "(): " .. why)
end

--- Return the text of an error that was caught.
function calls.reason(caught)
  return type(caught) == "table" and caught.err or tostring(caught)
end

function calls.text(command, name, word)
  if not word then
    calls.refuse(command, 'Arg "' .. name .. '" missing')
  end
  return word
end

function calls.number(command, name, word)
  local number = tonumber(calls.text(command, name, word))
  -- Lua takes `nan` and `inf` for numbers; no score or day can be made of them.
  if not number or number - number ~= 0 then
    calls.refuse(command, 'Arg "' .. name .. '" not a number: ' .. tostring(word))
  end
  return number
end

--- Return text that keys are made of.
function calls.name(command, name, word)
  if calls.text(command, name, word) == "" then
    calls.refuse(command, 'Arg "' .. name .. '" must not be empty')
  end
  return word
end

function calls.names(command, name, words)
  for _, word in ipairs(words) do
    calls.name(command, name, word)
  end
  return words
end

local function at_least(command, name, word, least)
  local number = calls.number(command, name, word)
  if number < least then
    calls.refuse(command, 'Arg "' .. name .. '" must be at least ' .. least .. ", got " .. word)
  end
  return math.floor(number)
end

--- Return how many are asked for.
function calls.count(command, name, word)
  return at_least(command, name, word, 1)
end

--- Return how many are skipped, or may be none.
function calls.offset(command, name, word)
  return at_least(command, name, word, 0)
end

--- Decode JSON text. `null` is a value, `false` is refused, as clients expect.
function calls.decoded(command, name, word)
  local is_json, value = pcall(cjson.decode, calls.text(command, name, word))
  if not is_json or not value then
    calls.refuse(command, 'Arg "' .. name .. '" not JSON: ' .. word)
  end
  return value
end

--- Return JSON text as it came, for data whose bytes are kept.
function calls.json(command, name, word)
  calls.decoded(command, name, word)
  return word
end

--- Return a list of text or numbers that came as JSON.
function calls.list(command, name, word)
  local list = calls.decoded(command, name, word)
  local count = 0
  if type(list) == "table" then
    for _, item in pairs(list) do
      count = count + 1
      if type(item) ~= "string" and type(item) ~= "number" then
        count = -1
        break
      end
    end
  end
  if type(list) ~= "table" or count ~= #list then
    calls.refuse(command, 'Arg "' .. name .. '" not an array of text: ' .. word)
  end
  return list
end

--- Return options given as alternating names and values. Names that `readers` does not know are ignored.
function calls.options(command, words, readers)
  local options = {}
  for index = 1, #words, 2 do
    local read = readers[words[index]]
    if read then
      options[words[index]] = read(command, words[index], words[index + 1])
    end
  end
  return options
end

return calls
end)()

modules.config = (function()
-- Options of the server, and their defaults.
local config = {}

--- Return the defaults that clients see: a new table each time, since a library's tables outlive a call.
function config.defaults()
  return {
    application = "qless",
    heartbeat = 60,
    ["grace-period"] = 10,
    ["stats-history"] = 30,
    ["histogram-history"] = 7,
    ["jobs-history-count"] = 50000,
    ["jobs-history"] = 604800,
  }
end

function config.number(name, default)
  return tonumber(redis.call("HGET", "ql:config", name)) or default
end

--- Return how long a lock on a job of the queue lasts, in seconds.
function config.heartbeat(queue)
  local set = redis.call("HMGET", "ql:config", queue .. "-heartbeat", "heartbeat")
  return tonumber(set[1]) or tonumber(set[2]) or 60
end

return config
end)()

modules.history = (function()
-- The history of a job: a list of `[when, what, {more}]`; in old jobs, an array of stages in the job's hash.
local config = require("config")

local history = {}

--- Return an entry as text.
function history.entry(when, what, more)
  return cjson.encode({ math.floor(when), what, more })
end

--- Convert the history of an old client, an object per stage, to entries. Return them, oldest first.
local function convert(jid)
  local old = redis.call("HGET", "ql:j:" .. jid, "history")
  local is_json, stages = pcall(cjson.decode, old or "[]")
  local entries = {}
  for _, stage in ipairs(is_json and type(stages) == "table" and stages or {}) do
    if stage.put then
      entries[#entries + 1] = history.entry(stage.put, "put", { q = stage.q })
    end
    if stage.popped then
      entries[#entries + 1] = history.entry(stage.popped, "popped", { worker = stage.worker })
    end
    if stage.failed then
      entries[#entries + 1] = history.entry(stage.failed, "failed")
    end
    if stage.done then
      entries[#entries + 1] = history.entry(stage.done, "done")
    end
  end
  if old then
    redis.call("HDEL", "ql:j:" .. jid, "history")
  end
  return entries
end

--- Return how many entries a job keeps.
function history.limit()
  return config.number("max-job-history", 100)
end

--- Add an entry, and keep the first one and the newest ones when there are more than `limit`.
function history.append(jid, text, limit)
  local key = "ql:j:" .. jid .. "-history"
  local length = redis.call("RPUSH", key, text)
  if length == 1 then
    local old = convert(jid)
    for index = #old, 1, -1 do
      length = redis.call("LPUSH", key, old[index])
    end
  end
  -- A limit of 2 has never limited anything, and one of 1 drops an entry for each new one, except the first and last.
  if limit > 0 and limit ~= 2 and length > math.max(limit, 2) then
    local first = redis.call("LPOP", key)
    redis.call("LTRIM", key, limit == 1 and 1 or 1 - limit, -1)
    redis.call("LPUSH", key, first)
  end
end

--- Add an entry to the history of one job.
function history.add(jid, when, what, more)
  history.append(jid, history.entry(when, what, more), history.limit())
end

--- Return the entries as objects.
function history.read(jid)
  local key = "ql:j:" .. jid .. "-history"
  local entries = redis.call("LRANGE", key, 0, -1)
  if #entries == 0 then
    entries = convert(jid)
    for _, text in ipairs(entries) do
      redis.call("RPUSH", key, text)
    end
  end
  for index, text in ipairs(entries) do
    local values = cjson.decode(text)
    local shown = values[3] or {}
    shown.when, shown.what = values[1], values[2]
    entries[index] = shown
  end
  return entries
end

return history
end)()

modules.jobs = (function()
-- The record of a job, read and shown.
local calls = require("calls")
local history = require("history")

local jobs = {}

local FIELDS = {
  "jid", "klass", "state", "queue", "worker", "priority", "expires", "retries", "remaining", "data", "tags",
  "failure", "spawned_from_jid", "time",
}

--- Return the fields of a job by name, as text; nil when it does not exist.
function jobs.read(jid)
  local values = redis.call("HMGET", "ql:j:" .. jid, unpack(FIELDS))
  if not values[1] then
    return nil
  end
  local job = {}
  for index = 1, #FIELDS do
    job[FIELDS[index]] = values[index]
  end
  return job
end

--- Return a job that `worker` runs, or refuse: existence, state and owner are checked in this order.
function jobs.read_running(command, jid, worker)
  local job = jobs.read(jid)
  if not job then
    calls.refuse(command, "Job " .. jid .. " does not exist")
  elseif job.state ~= "running" then
    calls.refuse(command, "Job " .. jid .. " is not currently running: " .. job.state)
  elseif worker and job.worker ~= worker then
    calls.refuse(command, "Job " .. jid .. " given out to another worker: " .. job.worker)
  end
  return job
end

--- Take one off the retries that a job has left; return how many those are. A number of retries may have a fraction,
-- which HINCRBY refuses: one such job would keep its queue from handing out others.
function jobs.count_down(job)
  local remaining = math.floor(tonumber(job.remaining) or 0) - 1
  redis.call("HSET", "ql:j:" .. job.jid, "remaining", remaining)
  return remaining
end

local function decoded(encoded)
  return encoded and encoded ~= "{}" and encoded ~= "[]" and cjson.decode(encoded) or {}
end

--- Return a job as clients see it, from its fields and whether it is `tracked`.
function jobs.present(job)
  local key = "ql:j:" .. job.jid
  job.priority = tonumber(job.priority)
  job.expires = tonumber(job.expires) or 0
  job.retries = tonumber(job.retries)
  job.remaining = math.floor(tonumber(job.remaining) or 0)
  job.data = job.data or "{}"
  job.tags = decoded(job.tags)
  job.failure = decoded(job.failure)
  job.history = history.read(job.jid)
  local is_linked = redis.call("EXISTS", key .. "-dependents", key .. "-dependencies") > 0
  job.dependents = is_linked and redis.call("SMEMBERS", key .. "-dependents") or {}
  job.dependencies = is_linked and redis.call("SMEMBERS", key .. "-dependencies") or {}
  job.time = nil
  return job
end

--- Return a job as clients see it; nil when it does not exist.
function jobs.show(jid)
  local job = jobs.read(jid)
  if job then
    job.tracked = redis.call("ZSCORE", "ql:tracked", jid) ~= false
  end
  return job and jobs.present(job)
end

--- Return jobs as clients see them; those that do not exist are left out.
function jobs.list(jids)
  local shown = {}
  for _, jid in ipairs(jids) do
    shown[#shown + 1] = jobs.show(jid)
  end
  return shown
end

--- Return a time as the record keeps it: in full, as statistics are computed from it.
function jobs.time(seconds)
  return ("%.20f"):format(seconds)
end

return jobs
end)()

modules.places = (function()
-- Where a job is: in one of a queue's sorted sets.
local places = {}

--- Have a queue be listed. Its place in the list is when it was first seen.
function places.learn(now, queue)
  redis.call("ZADD", "ql:queues", "NX", now, queue)
end

--- Make a job ready. The highest score comes first: high priority, then early time.
function places.work(queue, jid, priority, time)
  redis.call("ZADD", "ql:q:" .. queue .. "-work", (tonumber(priority) or 0) - time / 10000000000, jid)
end

function places.schedule(queue, jid, due)
  redis.call("ZADD", "ql:q:" .. queue .. "-scheduled", due, jid)
end

function places.depend(queue, jid, now)
  redis.call("ZADD", "ql:q:" .. queue .. "-depends", now, jid)
end

--- Lock jobs of a queue for a worker.
function places.lock(queue, jids, worker, expires)
  local entries = {}
  for _, jid in ipairs(jids) do
    entries[#entries + 1] = expires
    entries[#entries + 1] = jid
  end
  redis.call("ZADD", "ql:w:" .. worker .. ":jobs", unpack(entries))
  redis.call("ZADD", "ql:q:" .. queue .. "-locks", unpack(entries))
end

--- Take jobs out of whichever of a queue's sets holds them.
function places.leave(queue, ...)
  local key = "ql:q:" .. queue
  redis.call("ZREM", key .. "-locks", ...)
  redis.call("ZREM", key .. "-work", ...)
  -- Most queues have none of these.
  if redis.call("EXISTS", key .. "-scheduled", key .. "-depends") > 0 then
    redis.call("ZREM", key .. "-scheduled", ...)
    redis.call("ZREM", key .. "-depends", ...)
  end
end

--- Take jobs from the list of their worker.
function places.release(worker, ...)
  if worker and worker ~= "" then
    redis.call("ZREM", "ql:w:" .. worker .. ":jobs", ...)
  end
end

--- Make scheduled jobs ready whose time has come: at most `limit`, or all.
function places.move_due(now, queue, limit)
  local key = "ql:q:" .. queue .. "-scheduled"
  local due = redis.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit or -1)
  for _, jid in ipairs(due) do
    local priority = redis.call("HGET", "ql:j:" .. jid, "priority")
    redis.call("ZREM", key, jid)
    -- An entry without a job would be handed out as nothing.
    if priority then
      places.work(queue, jid, priority, now)
      redis.call("HSET", "ql:j:" .. jid, "state", "waiting")
    end
  end
end

--- Count the jobs of a queue.
function places.count(now, queue)
  local key = "ql:q:" .. queue
  local stalled = redis.call("ZCOUNT", key .. "-locks", 0, now)
  return {
    name = queue,
    waiting = redis.call("ZCARD", key .. "-work"),
    running = redis.call("ZCARD", key .. "-locks") - stalled,
    stalled = stalled,
    scheduled = redis.call("ZCARD", key .. "-scheduled"),
    depends = redis.call("ZCARD", key .. "-depends"),
    recurring = redis.call("ZCARD", key .. "-recur"),
    paused = redis.call("SISMEMBER", "ql:paused_queues", queue) == 1,
  }
end

return places
end)()

modules.dependencies = (function()
-- Jobs that wait for others.
local jobs = require("jobs")
local places = require("places")

local dependencies = {}

--- Have a job wait for those of `jids` that exist and are not complete.
function dependencies.link(jid, jids)
  for _, other in ipairs(jids) do
    local state = redis.call("HGET", "ql:j:" .. other, "state")
    if state and state ~= "complete" then
      redis.call("SADD", "ql:j:" .. other .. "-dependents", jid)
      redis.call("SADD", "ql:j:" .. jid .. "-dependencies", other)
    end
  end
end

--- Have a job wait for no other job.
function dependencies.unlink(jid)
  local key = "ql:j:" .. jid .. "-dependencies"
  for _, other in ipairs(redis.call("SMEMBERS", key)) do
    redis.call("SREM", "ql:j:" .. other .. "-dependents", jid)
  end
  redis.call("DEL", key)
end

--- Put a job where it belongs: with those that wait for others, with those that wait for their time, or with the ready.
-- Return its state. `drops_delay` makes a job ready at once that names only jobs that have ended.
function dependencies.place(now, queue, jid, priority, delay, drops_delay)
  local key = "ql:j:" .. jid
  if redis.call("SCARD", key .. "-dependencies") > 0 then
    places.depend(queue, jid, now)
    redis.call("HSET", key, "state", "depends")
    if delay > 0 then
      redis.call("HSET", key, "scheduled", now + delay)
    end
    return "depends"
  elseif delay > 0 and not drops_delay then
    places.schedule(queue, jid, now + delay)
    return "scheduled"
  end
  places.work(queue, jid, priority, now)
  return "waiting"
end

--- Let those go that wait for a job which is complete now.
function dependencies.release(now, jid)
  local key = "ql:j:" .. jid .. "-dependents"
  local dependents = redis.call("SMEMBERS", key)
  for _, dependent in ipairs(dependents) do
    local waits = "ql:j:" .. dependent .. "-dependencies"
    redis.call("SREM", waits, jid)
    local job = redis.call("SCARD", waits) == 0 and jobs.read(dependent)
    if job and job.queue and job.state == "depends" then
      redis.call("ZREM", "ql:q:" .. job.queue .. "-depends", dependent)
      local due = tonumber(redis.call("HGET", "ql:j:" .. dependent, "scheduled"))
      if due then
        places.schedule(job.queue, dependent, due)
        redis.call("HSET", "ql:j:" .. dependent, "state", "scheduled")
        redis.call("HDEL", "ql:j:" .. dependent, "scheduled")
      else
        places.work(job.queue, dependent, job.priority, now)
        redis.call("HSET", "ql:j:" .. dependent, "state", "waiting")
      end
    end
  end
  if #dependents > 0 then
    redis.call("DEL", key)
  end
end

return dependencies
end)()

modules.messages = (function()
-- What is published. The order of messages within a call is part of the API.
local messages = {}

--- Tell `ql:log` of an event.
function messages.log(event, fields)
  fields.event = event
  redis.call("PUBLISH", "ql:log", cjson.encode(fields))
end

--- Publish a job's id on `ql:<event>` when the job is tracked. Return whether it is.
function messages.tracked(event, jid)
  local is_tracked = redis.call("ZSCORE", "ql:tracked", jid) ~= false
  if is_tracked then
    redis.call("PUBLISH", "ql:" .. event, jid)
  end
  return is_tracked
end

--- Notify a worker, and then the log, that its lock is lost.
function messages.lock_lost(jid, worker)
  local message = cjson.encode({ jid = jid, event = "lock_lost", worker = worker })
  redis.call("PUBLISH", "ql:w:" .. worker, message)
  redis.call("PUBLISH", "ql:log", message)
end

return messages
end)()

modules.stats = (function()
-- Statistics of a queue and day: how long jobs waited and ran, and how many failed.
local stats = {}

function stats.day(seconds)
  return ("%.0f"):format(seconds - seconds % 86400)
end

local function bucket(seconds)
  seconds = math.floor(seconds)
  if seconds < 60 then
    return "s" .. seconds
  elseif seconds < 3600 then
    return "m" .. math.floor(seconds / 60)
  elseif seconds < 86400 then
    return "h" .. math.floor(seconds / 3600)
  end
  return "d" .. math.floor(seconds / 86400)
end

--- Add durations to the mean and deviation (after Welford) and to the histogram; `kind` is `wait` or `run`.
function stats.add(now, kind, queue, durations)
  local key = "ql:s:" .. kind .. ":" .. stats.day(now) .. ":" .. queue
  local held = redis.call("HMGET", key, "total", "mean", "vk")
  local total, mean, vk = tonumber(held[1]) or 0, tonumber(held[2]) or 0, tonumber(held[3]) or 0
  local counts = {}
  for _, seconds in ipairs(durations) do
    local old_mean = mean
    total = total + 1
    mean = mean + (seconds - mean) / total
    vk = vk + (seconds - mean) * (seconds - old_mean)
    local name = bucket(seconds)
    counts[name] = (counts[name] or 0) + 1
  end
  redis.call("HSET", key, "total", total, "mean", mean, "vk", vk)
  for name, count in pairs(counts) do
    redis.call("HINCRBY", key, name, count)
  end
end

--- Add to one of `retries`, `failures` and `failed`.
function stats.count(when, queue, name, by)
  redis.call("HINCRBY", "ql:s:stats:" .. stats.day(when) .. ":" .. queue, name, by)
end

--- Return the names of the buckets that clients see.
local function buckets()
  local names = {}
  for _, unit in ipairs({ { "s", 0, 59 }, { "m", 1, 59 }, { "h", 1, 23 }, { "d", 1, 6 } }) do
    for number = unit[2], unit[3] do
      names[#names + 1] = unit[1] .. number
    end
  end
  return names
end

local function durations(key)
  local held = redis.call("HMGET", key, "total", "mean", "vk")
  local count = tonumber(held[1]) or 0
  local histogram = redis.call("HMGET", key, unpack(buckets()))
  for index, value in ipairs(histogram) do
    histogram[index] = tonumber(value) or 0
  end
  return {
    count = count,
    mean = tonumber(held[2]) or 0,
    std = count > 1 and math.sqrt((tonumber(held[3]) or 0) / (count - 1)) or 0,
    histogram = histogram,
  }
end

--- Return the statistics of a queue for the day of a time.
function stats.read(queue, when)
  local day = stats.day(when)
  local counts = redis.call("HMGET", "ql:s:stats:" .. day .. ":" .. queue, "retries", "failed", "failures")
  return {
    retries = tonumber(counts[1]) or 0,
    failed = tonumber(counts[2]) or 0,
    failures = tonumber(counts[3]) or 0,
    wait = durations("ql:s:wait:" .. day .. ":" .. queue),
    run = durations("ql:s:run:" .. day .. ":" .. queue),
  }
end

return stats
end)()

modules.failures = (function()
-- Failed jobs, by the group of their failure.
local history = require("history")
local messages = require("messages")
local places = require("places")
local stats = require("stats")

local failures = {}

--- Add a job to the jobs of a group.
function failures.add(now, queue, jid, group)
  redis.call("SADD", "ql:failures", group)
  redis.call("LPUSH", "ql:f:" .. group, jid)
  stats.count(now, queue, "failures", 1)
  stats.count(now, queue, "failed", 1)
end

--- Have a group be forgotten that has no jobs.
function failures.tidy(group)
  if redis.call("LLEN", "ql:f:" .. group) == 0 then
    redis.call("SREM", "ql:failures", group)
  end
end

--- Take a failed job out of its group; `encoded` is its field, and `queue` the one whose statistics it leaves.
function failures.remove(queue, jid, encoded)
  local failure = cjson.decode(encoded or "{}")
  if failure.group then
    redis.call("LREM", "ql:f:" .. failure.group, 0, jid)
    failures.tidy(failure.group)
    stats.count(failure.when, queue, "failed", -1)
  end
end

--- Return the failure of a job that used up its retries. After a `retry` into another queue, the two queues differ.
function failures.exhausted(now, group_queue, queue)
  return {
    group = "failed-retries-" .. group_queue,
    message = 'Job exhausted retries in queue "' .. queue .. '"',
    when = now,
    worker = "",
  }
end

--- Fail a job for good, in whatever state it is. `data` is its new data as JSON, nil to keep the old.
function failures.fail(now, job, failure, data)
  local jid, worker, group = job.jid, failure.worker, failure.group
  failure.when = math.floor(now)
  messages.log("failed", { jid = jid, worker = worker, group = group, message = failure.message })
  messages.tracked("failed", jid)
  places.release(job.worker, jid)
  history.add(jid, now, "failed", { worker = worker, group = group })
  places.leave(job.queue, jid)
  if data then
    redis.call("HSET", "ql:j:" .. jid, "data", data)
  end
  redis.call(
    "HMSET", "ql:j:" .. jid,
    "state", "failed", "worker", "", "expires", "", "failure", cjson.encode(failure)
  )
  failures.add(now, job.queue, jid, group)
end

--- Fail a job that used up its retries.
function failures.exhaust(now, queue, job, failure)
  places.leave(queue, job.jid)
  history.add(job.jid, now, "failed", { group = failure.group })
  redis.call(
    "HMSET", "ql:j:" .. job.jid,
    "state", "failed", "worker", "", "expires", "", "failure", cjson.encode(failure)
  )
  failures.add(now, queue, job.jid, failure.group)
  messages.tracked("failed", job.jid)
end

return failures
end)()

modules.tags = (function()
-- The index of tags. `ql:tags` counts words given, not jobs: it drifts, as clients know it.
local tags = {}

function tags.add(now, jid, tag)
  redis.call("ZADD", "ql:t:" .. tag, now, jid)
  redis.call("ZINCRBY", "ql:tags", 1, tag)
end

function tags.remove(jid, tag)
  redis.call("ZREM", "ql:t:" .. tag, jid)
  redis.call("ZINCRBY", "ql:tags", -1, tag)
end

--- Remove all tags of a job from the index; `encoded` is its field.
function tags.clear(jid, encoded)
  for _, tag in ipairs(cjson.decode(encoded or "[]")) do
    tags.remove(jid, tag)
  end
end

return tags
end)()

modules.completion = (function()
-- The end of jobs, or of their work in one queue.
local calls = require("calls")
local dependencies = require("dependencies")
local history = require("history")
local jobs = require("jobs")
local messages = require("messages")
local places = require("places")
local stats = require("stats")
local tags = require("tags")

local completion = {}

-- How many jobs a call forgets at most of those that are too old, and of those that are too many. The next one continues.
local FORGOTTEN = 100

--- Return a job that a worker runs in a queue, with its new data, or refuse.
function completion.read(jid, worker, queue, data)
  local job = jobs.read_running("Complete", jid, worker)
  if job.queue ~= queue then
    calls.refuse("Complete", "Job " .. jid .. " running in another queue: " .. job.queue)
  end
  job.data = data
  return job
end

local function forget(jids)
  local keys = {}
  for _, jid in ipairs(jids) do
    local key = "ql:j:" .. jid
    tags.clear(jid, redis.call("HGET", key, "tags"))
    keys[#keys + 1] = key
    keys[#keys + 1] = key .. "-history"
  end
  if keys[1] then
    redis.call("DEL", unpack(keys))
    redis.call("ZREM", "ql:completed", unpack(jids))
  end
end

--- Forget completed jobs that are too old or too many.
local function expire(now)
  local set = redis.call("HMGET", "ql:config", "jobs-history", "jobs-history-count")
  local oldest, kept = now - (tonumber(set[1]) or 604800), tonumber(set[2]) or 50000
  forget(redis.call("ZRANGEBYSCORE", "ql:completed", "-inf", oldest, "LIMIT", 0, FORGOTTEN))
  local surplus = kept < 0 and -kept or redis.call("ZCARD", "ql:completed") - kept
  if surplus > 0 then
    forget(redis.call("ZRANGE", "ql:completed", 0, math.min(surplus, FORGOTTEN) - 1))
  end
end

--- Write the end of a job's attempt.
local function close(job, done, limit, time, queue)
  history.append(job.jid, done, limit)
  redis.call(
    "HSET", "ql:j:" .. job.jid,
    "data", job.data, "time", time, "worker", "", "expires", 0, "failure", "{}", "remaining", job.retries,
    "state", queue and "waiting" or "complete", "queue", queue or ""
  )
end

--- End the work of jobs that one worker runs in one queue, with their new data. `queue` is where they go, if anywhere.
-- Return those whose records could be written, and why the last of the others could not.
function completion.leave(now, list, queue)
  local done, limit, time = history.entry(now, "done"), history.limit(), jobs.time(now)
  local tracks = redis.call("EXISTS", "ql:tracked") == 1
  local left, jids, durations, refusal = {}, {}, {}, nil
  for _, job in ipairs(list) do
    -- Not to leave those before it half ended, a record that cannot be written ends only itself.
    local is_written, why = pcall(close, job, done, limit, time, queue)
    if is_written then
      local index = #left + 1
      left[index], jids[index], durations[index] = job, job.jid, now - (tonumber(job.time) or now)
      if tracks then
        messages.tracked("completed", job.jid)
      end
      messages.log(queue and "advanced" or "completed", { jid = job.jid, queue = job.queue, to = queue })
    else
      refusal = why
    end
  end
  if left[1] then
    places.leave(left[1].queue, unpack(jids))
    places.release(left[1].worker, unpack(jids))
    stats.add(now, "run", left[1].queue, durations)
  end
  return left, refusal
end

--- Move a job on to its next queue. Return its state.
function completion.advance(now, job, options)
  local jid, queue = job.jid, options.next
  local waits_for = options.depends or {}
  history.add(jid, now, "put", { q = queue })
  places.learn(now, queue)
  dependencies.link(jid, waits_for)
  return dependencies.place(now, queue, jid, job.priority, options.delay or 0, #waits_for > 0)
end

--- End jobs for good.
function completion.finish(now, list)
  local entries = {}
  for _, job in ipairs(list) do
    entries[#entries + 1] = now
    entries[#entries + 1] = job.jid
  end
  redis.call("ZADD", "ql:completed", unpack(entries))
  expire(now)
  for _, job in ipairs(list) do
    dependencies.release(now, job.jid)
  end
  return "complete"
end

return completion
end)()

modules.recurring = (function()
-- Jobs that make a new job every so often, when a worker asks their queue for jobs.
local history = require("history")
local jobs = require("jobs")
local places = require("places")
local tags = require("tags")

local recurring = {}

local FIELDS = { "klass", "data", "priority", "tags", "retries", "interval", "backlog" }

local function spawn(now, queue, jid, due, parent)
  local number = redis.call("HINCRBY", "ql:r:" .. jid, "count", 1)
  local child = jid .. "-" .. number
  local klass, data, priority, encoded, retries = unpack(parent, 1, 5)
  for _, tag in ipairs(cjson.decode(encoded)) do
    tags.add(now, child, tag)
  end
  history.add(child, due, "put", { q = queue })
  redis.call(
    "HMSET", "ql:j:" .. child,
    "jid", child, "klass", klass, "data", data, "priority", priority, "tags", encoded, "state", "waiting",
    "worker", "", "expires", 0, "queue", queue, "retries", retries, "remaining", retries,
    "time", jobs.time(due), "spawned_from_jid", jid
  )
  places.work(queue, child, priority, due)
end

--- Make the children that are due, at most `limit` of all recurring jobs of a queue.
function recurring.spawn(now, queue, limit)
  local key = "ql:q:" .. queue .. "-recur"
  local spawned = 0
  for _, jid in ipairs(redis.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit)) do
    local parent = redis.call("HMGET", "ql:r:" .. jid, unpack(FIELDS))
    if not parent[1] then
      redis.call("ZREM", key, jid)
    else
      local interval, backlog = tonumber(parent[6]), tonumber(parent[7]) or 0
      local due = math.floor(tonumber(redis.call("ZSCORE", key, jid)))
      local late = (now - due) / interval
      if backlog > 0 and late > backlog then
        due = due + math.ceil(late - backlog) * interval
      end
      while due <= now and spawned < limit do
        spawn(now, queue, jid, due, parent)
        spawned, due = spawned + 1, due + interval
        redis.call("ZADD", key, due, jid)
      end
    end
    if spawned >= limit then
      return
    end
  end
end

return recurring
end)()

modules.popping = (function()
-- Hands out jobs: expired locks first, then recurring and due jobs, then ready ones.
local config = require("config")
local failures = require("failures")
local history = require("history")
local jobs = require("jobs")
local messages = require("messages")
local places = require("places")
local recurring = require("recurring")
local stats = require("stats")

local popping = {}

--- Warn the worker of an expired lock, and leave it the time of grace.
local function warn(now, queue, job, grace)
  messages.tracked("stalled", job.jid)
  history.add(job.jid, now, "timed-out")
  redis.call("HSET", "ql:j:" .. job.jid, "grace", 1)
  messages.lock_lost(job.jid, job.worker)
  stats.count(now, queue, "retries", 1)
  redis.call("ZADD", "ql:q:" .. queue .. "-locks", now + grace, job.jid)
end

--- Take a job from the worker that lost it. Return whether it may run again.
local function hand_over(now, queue, job)
  redis.call("HDEL", "ql:j:" .. job.jid, "grace")
  if jobs.count_down(job) >= 0 then
    return true
  end
  local failure = failures.exhausted(now, job.queue, queue)
  failures.exhaust(now, queue, job, failure)
  messages.log("failed", { jid = job.jid, worker = job.worker, group = failure.group, message = failure.message })
  return false
end

--- Handle at most `count` expired locks, the oldest first. Return the jobs to deliver.
local function expired(now, queue, count, grace)
  local locks = "ql:q:" .. queue .. "-locks"
  local due = redis.call("ZRANGEBYSCORE", locks, "-inf", now, "LIMIT", 0, count)
  grace = grace or due[1] and config.number("grace-period", 10)
  local taken = {}
  for _, jid in ipairs(due) do
    local job = jobs.read(jid)
    if not job then
      redis.call("ZREM", locks, jid)
    else
      places.release(job.worker, jid)
      -- Without a grace period, the worker is notified and loses its job immediately, even if it was notified before.
      local is_warned = grace > 0 and redis.call("HGET", "ql:j:" .. jid, "grace") == "1"
      if not is_warned then
        warn(now, queue, job, grace)
      end
      if (is_warned or grace <= 0) and hand_over(now, queue, job) then
        taken[#taken + 1] = jid
      end
    end
  end
  return taken
end

--- Return how many jobs may start: `count`, or less if the queue has its own limit.
local function allowed(now, queue, count)
  local limit = config.number(queue .. "-max-concurrency", 0)
  if limit > 0 then
    return math.min(count, limit - redis.call("ZCOUNT", "ql:q:" .. queue .. "-locks", now, "+inf"))
  end
  return count
end

--- Hand jobs of a queue to a worker, at most 100 a call. Add their ids to `popped` and their fields to `records`.
local function hand_out(now, queue, worker, jids, popped, records)
  local entry, limit = history.entry(now, "popped", { worker = worker }), history.limit()
  local time, expires = jobs.time(now), now + config.heartbeat(queue)
  local tracks = redis.call("EXISTS", "ql:tracked") == 1
  local taken, waits = {}, {}
  for _, jid in ipairs(jids) do
    local job = jobs.read(jid)
    -- An entry without a job is dropped: it would keep the queue from ever handing out another.
    if not job then
      redis.call("ZREM", "ql:q:" .. queue .. "-locks", jid)
    else
      history.append(jid, entry, limit)
      redis.call("HSET", "ql:j:" .. jid, "time", time, "worker", worker, "expires", expires, "state", "running")
      job.worker, job.expires, job.state = worker, expires, "running"
      job.tracked = tracks and messages.tracked("popped", jid)
      taken[#taken + 1], waits[#waits + 1] = jid, now - (tonumber(job.time) or now)
      popped[#popped + 1], records[jid] = jid, job
    end
  end
  if taken[1] then
    places.lock(queue, taken, worker, expires)
    stats.add(now, "wait", queue, waits)
  end
  redis.call("ZREM", "ql:q:" .. queue .. "-work", unpack(jids))
end

--- Return the ready jobs that come next, after having made those ready whose time has come.
local function ready(now, queue, count)
  if count <= 0 then
    return {}
  end
  recurring.spawn(now, queue, count)
  places.move_due(now, queue, count)
  return redis.call("ZREVRANGE", "ql:q:" .. queue .. "-work", 0, count - 1)
end

--- Hand out at most `count` jobs of a queue, and return them as clients see them. `grace` is what a worker that lost a
-- job has left for it, when that is not the option.
function popping.pop(now, queue, worker, count, grace)
  count = math.floor(count)
  if redis.call("SISMEMBER", "ql:paused_queues", queue) == 1 then
    return {}
  end
  redis.call("ZADD", "ql:workers", now, worker)
  count = allowed(now, queue, count)
  if count <= 0 then
    return {}
  end
  local popped, records = {}, {}
  local function take(jids)
    for first = 1, #jids, 100 do
      hand_out(now, queue, worker, { unpack(jids, first, math.min(first + 99, #jids)) }, popped, records)
    end
    return #jids > 0
  end
  take(expired(now, queue, count, grace))
  -- Again, when entries without a job were dropped.
  while #popped < count and take(ready(now, queue, count - #popped)) do
  end
  -- Shown as it is in the end, and once: a recurring job that was deleted and made again can make one again that expired.
  for index, jid in ipairs(popped) do
    local job = records[jid]
    popped[index] = job.history and job or jobs.present(job)
  end
  return popped
end

--- Return at most `count` jobs that would be handed out.
function popping.peek(now, queue, count)
  count = math.floor(count)
  local found = {}
  if count > 0 then
    found = redis.call("ZRANGEBYSCORE", "ql:q:" .. queue .. "-locks", "-inf", now, "LIMIT", 0, count)
  end
  for _, jid in ipairs(ready(now, queue, count - #found)) do
    found[#found + 1] = jid
  end
  return found
end

return popping
end)()

modules.creation = (function()
-- The jobs that `put` and `requeue` make or move.
local calls = require("calls")
local dependencies = require("dependencies")
local failures = require("failures")
local history = require("history")
local jobs = require("jobs")
local messages = require("messages")
local places = require("places")
local tags = require("tags")

local creation = {}

local READERS = { priority = calls.number, retries = calls.number, tags = calls.list, depends = calls.list }

--- Read the options of a job, before anything is written.
function creation.options(command, words)
  if #words % 2 == 1 then
    calls.refuse(command, "Odd number of additional args: " .. table.concat(words, " "))
  end
  return calls.options(command, words, READERS)
end

--- Take the job as it was out of wherever it is.
local function take_out(me, old)
  if old.queue and old.queue ~= "" then
    places.leave(old.queue, old.jid)
  end
  if old.worker and old.worker ~= "" then
    places.release(old.worker, old.jid)
    if old.worker ~= me then
      messages.lock_lost(old.jid, old.worker)
    end
  end
  if old.state == "complete" then
    redis.call("ZREM", "ql:completed", old.jid)
  end
end

--- Make or move a job. `new` has me, queue, jid, klass, data, delay and options.
function creation.put(now, new)
  local queue, jid, options = new.queue, new.jid, new.options
  local old = jobs.read(jid)
  local kept = old or {}
  local priority = options.priority or tonumber(kept.priority) or 0
  local retries = options.retries or tonumber(kept.retries) or 5
  local encoded = options.tags and cjson.encode(options.tags) or kept.tags or "{}"
  if old then
    tags.clear(jid, old.tags)
  end
  if options.depends and #options.depends > 0 then
    dependencies.unlink(jid)
  end
  messages.log("put", { jid = jid, queue = queue })
  history.add(jid, now, "put", { q = queue })
  if old then
    take_out(new.me, old)
  end
  for _, tag in ipairs(cjson.decode(encoded)) do
    tags.add(now, jid, tag)
  end
  if kept.state == "failed" then
    failures.remove(queue, jid, old.failure)
  end
  redis.call(
    "HMSET", "ql:j:" .. jid,
    "jid", jid, "klass", new.klass, "data", new.data, "priority", priority, "tags", encoded,
    "state", new.delay > 0 and "scheduled" or "waiting", "worker", "", "expires", 0, "queue", queue,
    "retries", retries, "remaining", retries, "time", jobs.time(now)
  )
  dependencies.link(jid, options.depends or {})
  dependencies.place(now, queue, jid, priority, new.delay)
  places.learn(now, queue)
  messages.tracked("put", jid)
  return jid
end

return creation
end)()

modules.older = (function()
-- What the calls of the older form share: lower priorities come first, empty lists are arrays, and a refusal is nil.
local calls = require("calls")
local jobs = require("jobs")

local older = {}

-- What the history of a stage says besides its queue and worker.
local TIMES = { put = true, popped = true, done = true, failed = true }

--- Turn a priority of this form, in which lower comes first, into one of the commands, or back. Never `-0`.
function older.flip(priority)
  return 0 - priority
end

--- Return the core's name of an option: this form puts the queue last.
function older.option(name)
  local queue = name:match("^heartbeat%-(.+)$")
  return queue and queue .. "-heartbeat" or name
end

--- Refuse more words than a call has.
function older.most(command, words, most)
  if #words > most then
    calls.refuse(command, 'Unknown argument "' .. words[most + 1] .. '"')
  end
end

--- Return an array of text that came as JSON, each once and none empty.
function older.distinct(command, name, word)
  local list, has = {}, {}
  for _, item in ipairs(calls.list(command, name, word)) do
    if not has[calls.name(command, name, tostring(item))] then
      list[#list + 1], has[tostring(item)] = item, true
    end
  end
  return list
end

--- Return how often a job may be retried. The server counts down only whole numbers.
function older.retries(command, name, word)
  local retries = calls.number(command, name, word)
  if retries % 1 ~= 0 then
    calls.refuse(command, 'Arg "' .. name .. '" must be a whole number, got ' .. word)
  end
  return retries
end

--- Return options given as alternating names and values, which must all be known. `delay` is one that is no option.
function older.options(command, words, readers, delay)
  for index = 1, #words, 2 do
    if not readers[words[index]] then
      calls.refuse(command, 'Unknown option "' .. words[index] .. '"')
    end
  end
  local options = calls.options(command, words, readers)
  if (delay or options.delay or 0) > 0 and #(options.depends or {}) > 0 then
    calls.refuse(command, '"delay" and "depends" are not allowed to be used together')
  end
  return options
end

--- Return an array of JSON texts as JSON.
function older.join(texts)
  return "[" .. table.concat(texts, ",") .. "]"
end

--- Return an array as JSON, also when it is empty, which is an object to the server.
function older.array(list)
  local texts = {}
  for index, value in ipairs(list) do
    texts[index] = cjson.encode(value)
  end
  return older.join(texts)
end

--- Return an object as JSON: `fields`, and those that are JSON `texts` already.
function older.object(fields, texts)
  local parts = {}
  for name, value in pairs(fields) do
    parts[#parts + 1] = cjson.encode(name) .. ":" .. cjson.encode(value)
  end
  for name, text in pairs(texts) do
    parts[#parts + 1] = cjson.encode(name) .. ":" .. text
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- Return the stages of a job: an object for each queue that it was put in.
local function stages(job)
  local list = {}
  for _, entry in ipairs(job.history) do
    local stage = list[#list]
    if entry.what == "put" or not stage then
      stage = { q = entry.q or job.queue }
      list[#list + 1] = stage
    end
    if TIMES[entry.what] then
      stage[entry.what] = entry.when
    end
    if entry.what == "popped" then
      stage.worker = entry.worker
    end
  end
  return list
end

--- Return a job that clients see as JSON, with its data as they came, and with `more` fields.
function older.text(job, more)
  local texts = { data = job.data, history = older.array(stages(job)) }
  for _, name in ipairs({ "tags", "dependents", "dependencies" }) do
    texts[name] = older.array(job[name])
  end
  for name in pairs(texts) do
    job[name] = nil
  end
  for name, value in pairs(more or {}) do
    job[name] = value
  end
  job.priority = older.flip(job.priority or 0)
  job.queue = job.queue ~= "" and job.queue or cjson.null
  return older.object(job, texts)
end

--- Return jobs that clients see as a list of JSON texts.
function older.texts(shown)
  local texts = {}
  for index, job in ipairs(shown) do
    texts[index] = older.text(job)
  end
  return texts
end

--- Return a job that runs for `worker`; nil when it does not.
function older.running(jid, worker)
  local job = jobs.read(jid)
  return job and job.state == "running" and job.worker == worker and job or nil
end

--- Note when a worker was last active.
function older.see(now, worker)
  redis.call("ZADD", "ql:workers", now, worker)
end

return older
end)()

modules.consistency = (function()
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
end)()

local calls, commands = require("calls"), {}

do
  local dependencies = require("dependencies")
  local failures = require("failures")
  local jobs = require("jobs")
  local messages = require("messages")
  local places = require("places")
  local tags = require("tags")
  commands["cancel"] = function(_, ARGV)
    local jids = rest(ARGV, 3)
    local named = {}
    for _, jid in ipairs(jids) do
      named[jid] = true
    end
    for _, jid in ipairs(jids) do
      for _, dependent in ipairs(redis.call("SMEMBERS", "ql:j:" .. jid .. "-dependents")) do
        if not named[dependent] then
          calls.refuse("Cancel", jid .. " is a dependency of " .. dependent .. " but is not mentioned to be canceled")
        end
      end
    end
    for _, jid in ipairs(jids) do
      local job = jobs.read(jid) or {}
      if job.state ~= "complete" then
        local worker = job.worker or false
        local message = { jid = jid, worker = worker, event = "canceled", queue = job.queue or false }
        messages.log("canceled", message)
        if worker and worker ~= "" then
          places.release(worker, jid)
          redis.call("PUBLISH", "ql:w:" .. worker, cjson.encode(message))
        end
        if job.queue then
          places.leave(job.queue, jid)
        end
        dependencies.unlink(jid)
        if job.state == "failed" then
          failures.remove(job.queue, jid, job.failure)
        end
        tags.clear(jid, job.tags)
        messages.tracked("canceled", jid)
        redis.call("DEL", "ql:j:" .. jid, "ql:j:" .. jid .. "-history")
      end
    end
    return jids
  end
end

do
  local completion = require("completion")
  commands["complete"] = function(now, ARGV)
    local jid = calls.text("Complete", "jid", ARGV[3])
    local worker = calls.text("Complete", "worker", ARGV[4])
    local queue = calls.text("Complete", "queue", ARGV[5])
    local data = calls.json("Complete", "data", ARGV[6])
    local words = rest(ARGV, 7)
    -- `next` without a name is a plain completion.
    if words[#words] == "next" and #words % 2 == 1 then
      words[#words] = nil
    end
    local options = calls.options("Complete", words, { next = calls.text, delay = calls.number, depends = calls.list })
    if not options.next and (options.delay or 0) > 0 then
      calls.refuse("Complete", '"delay" cannot be used without a "next" queue')
    elseif not options.next and #(options.depends or {}) > 0 then
      calls.refuse("Complete", '"depends" cannot be used without a "next" queue')
    end
    local left, refusal = completion.leave(now, { completion.read(jid, worker, queue, data) }, options.next)
    if not left[1] then
      error(refusal)
    end
    return options.next and completion.advance(now, left[1], options) or completion.finish(now, left)
  end
end

do
  local config = require("config")
  commands["config.get"] = function(_, ARGV)
    local words = rest(ARGV, 3)
    if words[1] then
      return redis.call("HGET", "ql:config", words[1]) or config.defaults()[words[1]]
    end
    local options = config.defaults()
    local set = redis.call("HGETALL", "ql:config")
    for index = 1, #set, 2 do
      options[set[index]] = set[index + 1]
    end
    return cjson.encode(options)
  end
end

do
  local messages = require("messages")
  commands["config.set"] = function(_, ARGV)
    local option = calls.text("Config.set", "option", ARGV[3])
    local value = calls.text("Config.set", "value", ARGV[4])
    messages.log("config_set", { option = option, value = value })
    redis.call("HSET", "ql:config", option, value)
  end
end

do
  local messages = require("messages")
  commands["config.unset"] = function(_, ARGV)
    local option = calls.text("Config.unset", "option", ARGV[3])
    messages.log("config_unset", { option = option })
    redis.call("HDEL", "ql:config", option)
  end
end

do
  local dependencies = require("dependencies")
  local jobs = require("jobs")
  local places = require("places")
  commands["depends"] = function(now, ARGV)
    local jid = calls.text("Depends", "jid", ARGV[3])
    local change = calls.text("Depends", "change", ARGV[4])
    local words = rest(ARGV, 5)
    if change ~= "on" and change ~= "off" then
      calls.refuse("Depends", 'Argument "command" must be "on" or "off": ' .. change)
    end
    local job = jobs.read(jid)
    if not job or job.state ~= "depends" then
      calls.refuse("Depends", "Job " .. jid .. " not in the depends state: " .. (job and job.state or "none"))
    end
    if change == "on" then
      dependencies.link(jid, words)
      return 1
    end
    local waits = "ql:j:" .. jid .. "-dependencies"
    if words[1] == "all" then
      dependencies.unlink(jid)
    end
    for _, other in ipairs(words) do
      redis.call("SREM", "ql:j:" .. other .. "-dependents", jid)
      redis.call("SREM", waits, other)
    end
    if redis.call("SCARD", waits) == 0 then
      redis.call("ZREM", "ql:q:" .. job.queue .. "-depends", jid)
      places.work(job.queue, jid, job.priority, now)
      redis.call("HSET", "ql:j:" .. jid, "state", "waiting")
    end
    return 1
  end
end

do
  local failures = require("failures")
  local jobs = require("jobs")
  commands["fail"] = function(now, ARGV)
    local jid = calls.text("Fail", "jid", ARGV[3])
    local worker = calls.text("Fail", "worker", ARGV[4])
    local group = calls.text("Fail", "group", ARGV[5])
    local message = calls.text("Fail", "message", ARGV[6])
    local words = rest(ARGV, 7)
    local data = words[1] and calls.decoded("Fail", "data", words[1])
    local job = jobs.read_running("Fail", jid, worker)
    failures.fail(now, job, { group = group, message = message, worker = worker }, data and cjson.encode(data))
    return jid
  end
end

do
  commands["failed"] = function(_, ARGV)
    local words = rest(ARGV, 3)
    local group = words[1]
    if group then
      local start = calls.number("Failed", "start", words[2] or 0)
      local limit = calls.number("Failed", "limit", words[3] or 25)
      local key = "ql:f:" .. group
      local jids = redis.call("LRANGE", key, start, start + limit - 1)
      return cjson.encode({ total = redis.call("LLEN", key), jobs = jids })
    end
    local counts = {}
    for _, name in ipairs(redis.call("SMEMBERS", "ql:failures")) do
      counts[name] = redis.call("LLEN", "ql:f:" .. name)
    end
    return cjson.encode(counts)
  end
end

do
  local jobs = require("jobs")
  commands["get"] = function(_, ARGV)
    local jid = calls.text("Get", "jid", ARGV[3])
    local job = jobs.show(jid)
    return job and cjson.encode(job)
  end
end

do
  local config = require("config")
  local jobs = require("jobs")
  local places = require("places")
  commands["heartbeat"] = function(now, ARGV)
    local jid = calls.text("Heartbeat", "jid", ARGV[3])
    local worker = calls.text("Heartbeat", "worker", ARGV[4])
    local words = rest(ARGV, 5)
    local data = words[1] and calls.decoded("Heartbeat", "data", words[1])
    local job = jobs.read_running("Heartbeat", jid, worker)
    local expires = now + config.heartbeat(job.queue)
    if data then
      redis.call("HSET", "ql:j:" .. jid, "data", cjson.encode(data))
    end
    redis.call("HSET", "ql:j:" .. jid, "expires", expires)
    places.lock(job.queue, { jid }, worker, expires)
    redis.call("ZADD", "ql:workers", now, worker)
    return expires
  end
end

do
  local places = require("places")
  commands["jobs"] = function(now, ARGV)
    local state = calls.text("Jobs", "state", ARGV[3])
    local words = rest(ARGV, 4)
    local queue = state ~= "complete" and table.remove(words, 1)
    local offset = calls.number("Jobs", "offset", words[1] or 0)
    local count = calls.number("Jobs", "count", words[2] or 25)
    if state == "complete" then
      return redis.call("ZREVRANGE", "ql:completed", offset, offset + count - 1)
    end
    local ranges = {
      running = { "-locks", now, "+inf" },
      stalled = { "-locks", "-inf", now },
      scheduled = { "-scheduled", "-inf", "+inf" },
      depends = { "-depends", "-inf", "+inf" },
      recurring = { "-recur", "-inf", "+inf" },
    }
    local range = ranges[state] or calls.refuse("Jobs", "Unknown type " .. state)
    local key = "ql:q:" .. calls.text("Jobs", "queue", queue) .. range[1]
    if state == "scheduled" then
      places.move_due(now, queue)
    end
    return redis.call("ZRANGEBYSCORE", key, range[2], range[3], "LIMIT", offset, count)
  end
end

do
  commands["length"] = function(_, ARGV)
    local queue = calls.text("Length", "queue", ARGV[3])
    local key = "ql:q:" .. queue
    return redis.call("ZCARD", key .. "-locks") + redis.call("ZCARD", key .. "-work")
      + redis.call("ZCARD", key .. "-scheduled")
  end
end

do
  local history = require("history")
  commands["log"] = function(now, ARGV)
    local jid = calls.text("Log", "jid", ARGV[3])
    local message = calls.text("Log", "message", ARGV[4])
    local words = rest(ARGV, 5)
    local more = words[1] and calls.decoded("Log", "data", words[1])
    if more and type(more) ~= "table" then
      calls.refuse("Log", 'Arg "data" not an object: ' .. words[1])
    elseif redis.call("EXISTS", "ql:j:" .. jid) == 0 then
      calls.refuse("Log", "Job " .. jid .. " does not exist")
    end
    history.add(jid, now, message, more)
  end
end

do
  local completion = require("completion")
  commands["multicomplete"] = function(now, ARGV)
    local worker = calls.text("Multicomplete", "worker", ARGV[3])
    local queue = calls.text("Multicomplete", "queue", ARGV[4])
    local words = rest(ARGV, 5)
    if #words == 0 or #words % 2 == 1 or #words > 200 then
      calls.refuse("Multicomplete", "takes an id and data for each of 1 to 100 jobs, got " .. #words .. " words")
    end
    local replies, list, by_jid = {}, {}, {}

    local function read(jid, data)
      if by_jid[jid] then
        calls.refuse("Complete", "Job " .. jid .. " is not currently running: complete")
      end
      return completion.read(jid, worker, queue, calls.json("Complete", "data", data))
    end

    for index = 1, #words, 2 do
      local jid = words[index]
      local is_read, job = pcall(read, jid, words[index + 1])
      if is_read then
        list[#list + 1], by_jid[jid] = job, #replies + 1
      end
      replies[#replies + 1] = is_read and "complete" or calls.reason(job)
    end
    local left, refusal = completion.leave(now, list)
    if #left < #list then
      for _, job in ipairs(list) do
        replies[by_jid[job.jid]] = calls.reason(refusal)
      end
      for _, job in ipairs(left) do
        replies[by_jid[job.jid]] = "complete"
      end
    end
    if left[1] then
      completion.finish(now, left)
    end
    return replies
  end
end

do
  local jobs = require("jobs")
  commands["multiget"] = function(_, ARGV)
    local jids = rest(ARGV, 3)
    return cjson.encode(jobs.list(jids))
  end
end

do
  commands["pause"] = function(_, ARGV)
    local queues = rest(ARGV, 3)
    redis.call("SADD", "ql:paused_queues", unpack(queues))
  end
end

do
  local jobs = require("jobs")
  local popping = require("popping")
  commands["peek"] = function(now, ARGV)
    local queue = calls.text("Peek", "queue", ARGV[3])
    local count = calls.number("Peek", "count", ARGV[4])
    local words = rest(ARGV, 5)
    if not words[1] then
      return cjson.encode(jobs.list(popping.peek(now, queue, count)))
    end
    local offset, total = count, calls.number("Peek", "count", words[1])
    local jids = popping.peek(now, queue, offset + total)
    local page = {}
    for index = offset + 1, #jids do
      page[#page + 1] = jids[index]
    end
    return cjson.encode(jobs.list(page))
  end
end

do
  local popping = require("popping")
  commands["pop"] = function(now, ARGV)
    local queue = calls.text("Pop", "queue", ARGV[3])
    local worker = calls.text("Pop", "worker", ARGV[4])
    local count = calls.number("Pop", "count", ARGV[5])
    return cjson.encode(popping.pop(now, queue, worker, count))
  end
end

do
  local jobs = require("jobs")
  local places = require("places")
  commands["priority"] = function(_, ARGV)
    local jid = calls.text("Priority", "jid", ARGV[3])
    local priority = calls.number("Priority", "priority", ARGV[4])
    local job = jobs.read(jid)
    if not job then
      calls.refuse("Priority", "Job " .. jid .. " does not exist")
    end
    if job.queue and redis.call("ZSCORE", "ql:q:" .. job.queue .. "-work", jid) then
      places.work(job.queue, jid, priority, 0)
    end
    redis.call("HSET", "ql:j:" .. jid, "priority", priority)
    return priority
  end
end

do
  local creation = require("creation")
  commands["put"] = function(now, ARGV)
    local me = calls.text("Put", "me", ARGV[3])
    local queue = calls.text("Put", "queue", ARGV[4])
    local jid = calls.text("Put", "jid", ARGV[5])
    local klass = calls.text("Put", "klass", ARGV[6])
    local data = calls.json("Put", "data", ARGV[7])
    local delay = calls.number("Put", "delay", ARGV[8])
    local words = rest(ARGV, 9)
    local options = creation.options("Put", words)
    return creation.put(
      now,
      { me = me, queue = queue, jid = jid, klass = klass, data = data, delay = delay, options = options }
    )
  end
end

do
  commands["queue.forget"] = function(_, ARGV)
    local queues = rest(ARGV, 3)
    redis.call("ZREM", "ql:queues", unpack(queues))
  end
end

do
  local places = require("places")
  commands["queues"] = function(now, ARGV)
    local words = rest(ARGV, 3)
    local function count(queue)
      places.move_due(now, queue)
      return places.count(now, queue)
    end

    if words[1] then
      return cjson.encode(count(words[1]))
    end
    local counted = {}
    for index, queue in ipairs(redis.call("ZRANGE", "ql:queues", 0, -1)) do
      counted[index] = count(queue)
    end
    return cjson.encode(counted)
  end
end

do
  commands["recur.get"] = function(_, ARGV)
    local jid = calls.text("Recur.get", "jid", ARGV[3])
    local NUMBERS = { "priority", "interval", "retries", "count", "backlog" }
    local names = { "jid", "klass", "state", "queue", "data", "tags", unpack(NUMBERS) }
    local values = redis.call("HMGET", "ql:r:" .. jid, unpack(names))
    if not values[1] then
      return nil
    end
    local job = {}
    for index, name in ipairs(names) do
      job[name] = values[index]
    end
    for _, name in ipairs(NUMBERS) do
      job[name] = tonumber(job[name]) or 0
    end
    job.tags = cjson.decode(job.tags)
    return cjson.encode(job)
  end
end

do
  local places = require("places")
  commands["recur"] = function(now, ARGV)
    local queue = calls.text("Recur", "queue", ARGV[3])
    local jid = calls.text("Recur", "jid", ARGV[4])
    local klass = calls.text("Recur", "klass", ARGV[5])
    local data = calls.json("Recur", "data", ARGV[6])
    local kind = calls.text("Recur", "kind", ARGV[7])
    local interval = calls.number("Recur", "interval", ARGV[8])
    local offset = calls.number("Recur", "offset", ARGV[9])
    local words = rest(ARGV, 10)
    if kind ~= "interval" then
      calls.refuse("Recur", "schedule type " .. kind .. " unknown")
    elseif interval <= 0 then
      calls.refuse("Recur", "interval must be greater than or equal to 0")
    elseif #words % 2 == 1 then
      calls.refuse("Recur", "Odd number of additional args: " .. table.concat(words, " "))
    end
    local number = calls.number
    local READERS = { priority = number, tags = calls.list, retries = number, backlog = number }
    local options = calls.options("Recur", words, READERS)
    local key = "ql:r:" .. jid
    local old = redis.call("HGET", key, "queue")
    if old and old ~= queue then
      redis.call("ZREM", "ql:q:" .. old .. "-recur", jid)
    end
    redis.call(
      "HMSET", key,
      "jid", jid, "klass", klass, "data", data, "priority", options.priority or 0,
      "tags", cjson.encode(options.tags or {}), "state", "recur", "queue", queue, "type", "interval",
      "interval", interval, "retries", options.retries or 0, "backlog", options.backlog or 0
    )
    redis.call("HSETNX", key, "count", 0)
    redis.call("ZADD", "ql:q:" .. queue .. "-recur", now + offset, jid)
    places.learn(now, queue)
    return jid
  end
end

do
  commands["recur.tag"] = function(_, ARGV)
    local jid = calls.text("Recur.tag", "jid", ARGV[3])
    local tags = rest(ARGV, 4)
    local encoded = redis.call("HGET", "ql:r:" .. jid, "tags")
    if not encoded then
      calls.refuse("Recur", "No recurring job " .. jid)
    end
    local list, has = cjson.decode(encoded), {}
    for _, tag in ipairs(list) do
      has[tostring(tag)] = true
    end
    for _, tag in ipairs(tags) do
      if not has[tag] then
        list[#list + 1] = tag
      end
    end
    local text = cjson.encode(list)
    redis.call("HSET", "ql:r:" .. jid, "tags", text)
    return text
  end
end

do
  commands["recur.untag"] = function(_, ARGV)
    local jid = calls.text("Recur.untag", "jid", ARGV[3])
    local tags = rest(ARGV, 4)
    local encoded = redis.call("HGET", "ql:r:" .. jid, "tags")
    if not encoded then
      calls.refuse("Recur", "No recurring job " .. jid)
    end
    local gone, list = {}, {}
    for _, tag in ipairs(tags) do
      gone[tag] = true
    end
    for _, tag in ipairs(cjson.decode(encoded)) do
      if not gone[tostring(tag)] then
        list[#list + 1] = tag
      end
    end
    local text = cjson.encode(list)
    redis.call("HSET", "ql:r:" .. jid, "tags", text)
    return text
  end
end

do
  local places = require("places")
  commands["recur.update"] = function(now, ARGV)
    local jid = calls.text("Recur.update", "jid", ARGV[3])
    local words = rest(ARGV, 4)
    local number = calls.number
    local READERS = {
      priority = number, interval = number, retries = number, backlog = number,
      data = calls.json, klass = calls.text, queue = calls.text,
    }
    for index = 1, #words, 2 do
      if not READERS[words[index]] then
        calls.refuse("Recur", 'Unrecognized option "' .. words[index] .. '"')
      end
    end
    local changes = calls.options("Recur", words, READERS)
    if changes.interval and changes.interval <= 0 then
      calls.refuse("Recur", "interval must be greater than 0")
    end
    local key = "ql:r:" .. jid
    local held = redis.call("HMGET", key, "queue", "interval")
    if not held[1] then
      calls.refuse("Recur", "No recurring job " .. jid)
    end
    local queue, interval = held[1], tonumber(held[2])
    if changes.interval then
      redis.call("ZINCRBY", "ql:q:" .. queue .. "-recur", changes.interval - interval, jid)
    end
    if changes.queue then
      local due = redis.call("ZSCORE", "ql:q:" .. queue .. "-recur", jid)
      redis.call("ZREM", "ql:q:" .. queue .. "-recur", jid)
      redis.call("ZADD", "ql:q:" .. changes.queue .. "-recur", due, jid)
      places.learn(now, changes.queue)
    end
    for name, value in pairs(changes) do
      redis.call("HSET", key, name, value)
    end
    return 1
  end
end

do
  local creation = require("creation")
  commands["requeue"] = function(now, ARGV)
    local me = calls.text("Requeue", "me", ARGV[3])
    local queue = calls.text("Requeue", "queue", ARGV[4])
    local jid = calls.text("Requeue", "jid", ARGV[5])
    local klass = calls.text("Requeue", "klass", ARGV[6])
    local data = calls.json("Requeue", "data", ARGV[7])
    local delay = calls.number("Requeue", "delay", ARGV[8])
    local words = rest(ARGV, 9)
    local options = creation.options("Requeue", words)
    if redis.call("EXISTS", "ql:j:" .. jid) == 0 then
      calls.refuse("Requeue", "Job " .. jid .. " does not exist")
    end
    return creation.put(
      now,
      { me = me, queue = queue, jid = jid, klass = klass, data = data, delay = delay, options = options }
    )
  end
end

do
  local failures = require("failures")
  local jobs = require("jobs")
  local places = require("places")
  commands["retry"] = function(now, ARGV)
    local jid = calls.text("Retry", "jid", ARGV[3])
    local queue = calls.text("Retry", "queue", ARGV[4])
    local worker = calls.text("Retry", "worker", ARGV[5])
    local delay = calls.number("Retry", "delay", ARGV[6] or 0)
    local words = rest(ARGV, 7)
    local key = "ql:j:" .. jid
    local group, message = words[1], words[2]
    local job = jobs.read_running("Retry", jid, worker)
    local remaining = jobs.count_down(job)
    redis.call("HDEL", key, "grace")
    redis.call("ZREM", "ql:q:" .. job.queue .. "-locks", jid)
    places.release(worker, jid)
    local failure = message and { group = group, message = message, when = math.floor(now), worker = worker }
    if remaining < 0 then
      failure = failure or failures.exhausted(now, queue, job.queue)
      failure.group = group or failure.group
      failures.exhaust(now, queue, job, failure)
      return -1
    end
    if delay > 0 then
      places.schedule(queue, jid, now + delay)
    else
      places.work(queue, jid, job.priority, now)
    end
    -- With the queue where it waits: the lock of its next run is there, for heartbeat and complete to find.
    redis.call("HSET", key, "state", delay > 0 and "scheduled" or "waiting", "queue", queue)
    if message then
      redis.call("HSET", key, "failure", cjson.encode(failure))
    end
    return remaining
  end
end

do
  local stats = require("stats")
  commands["stats"] = function(_, ARGV)
    local queue = calls.text("Stats", "queue", ARGV[3])
    local date = calls.number("Stats", "date", ARGV[4])
    return cjson.encode(stats.read(queue, date))
  end
end

do
  local tags = require("tags")
  commands["tag"] = function(now, ARGV)
    local verb = calls.text("Tag", "verb", ARGV[3])
    local words = rest(ARGV, 4)
    local function page(offset, count)
      return calls.number("Tag", "offset", offset or 0), calls.number("Tag", "count", count or 25)
    end

    if verb == "get" then
      local tag = calls.text("Tag", "tag", words[1])
      local offset, count = page(words[2], words[3])
      local key = "ql:t:" .. tag
      local jids = redis.call("ZRANGE", key, offset, offset + count - 1)
      return cjson.encode({ total = redis.call("ZCARD", key), jobs = jids })
    elseif verb == "top" then
      local offset, count = page(words[1], words[2])
      return cjson.encode(redis.call("ZREVRANGEBYSCORE", "ql:tags", "+inf", 2, "LIMIT", offset, count))
    elseif verb ~= "add" and verb ~= "remove" then
      calls.refuse("Tag", 'First argument must be "add", "remove", "get" or "top": ' .. verb)
    end
    local jid = calls.text("Tag", "jid", words[1])
    local encoded = redis.call("HGET", "ql:j:" .. jid, "tags")
    if not encoded then
      calls.refuse("Tag", "Job " .. jid .. " does not exist")
    end
    local list, is_given = {}, {}
    for index = 2, #words do
      is_given[words[index]] = true
    end
    local has = {}
    for _, tag in ipairs(cjson.decode(encoded)) do
      if verb == "add" or not is_given[tostring(tag)] then
        list[#list + 1] = tag
        has[tostring(tag)] = true
      end
    end
    for index = 2, #words do
      local tag = words[index]
      if verb == "remove" then
        tags.remove(jid, tag)
      else
        if not has[tag] then
          list[#list + 1] = tag
          has[tag] = true
        end
        tags.add(now, jid, tag)
      end
    end
    local text = cjson.encode(list)
    redis.call("HSET", "ql:j:" .. jid, "tags", text)
    return text
  end
end

do
  local history = require("history")
  local jobs = require("jobs")
  local messages = require("messages")
  commands["timeout"] = function(now, ARGV)
    local jids = rest(ARGV, 3)
    local running = {}
    for index, jid in ipairs(jids) do
      running[index] = jobs.read_running("Timeout", jid)
    end
    for _, job in ipairs(running) do
      history.add(job.jid, now, "timed-out")
      redis.call("ZREM", "ql:q:" .. job.queue .. "-locks", job.jid)
      redis.call("ZADD", "ql:q:" .. job.queue .. "-work", "+inf", job.jid)
      redis.call("HMSET", "ql:j:" .. job.jid, "state", "stalled", "expires", 0)
      messages.lock_lost(job.jid, job.worker)
    end
  end
end

do
  local jobs = require("jobs")
  commands["track"] = function(now, ARGV)
    local words = rest(ARGV, 3)
    if not words[1] then
      local found = { jobs = {}, expired = {} }
      for _, jid in ipairs(redis.call("ZRANGE", "ql:tracked", 0, -1)) do
        local job = jobs.show(jid)
        local list = job and found.jobs or found.expired
        list[#list + 1] = job or jid
      end
      return cjson.encode(found)
    end
    local verb = words[1]:lower()
    local jid = calls.text("Track", "jid", words[2])
    if verb ~= "track" and verb ~= "untrack" then
      calls.refuse("Track", "Unknown action " .. words[1])
    elseif redis.call("EXISTS", "ql:j:" .. jid) == 0 then
      calls.refuse("Track", "Job does not exist")
    end
    redis.call("PUBLISH", "ql:" .. verb, jid)
    if verb == "track" then
      return cjson.encode(redis.call("ZADD", "ql:tracked", now, jid))
    end
    return cjson.encode(redis.call("ZREM", "ql:tracked", jid))
  end
end

do
  local failures = require("failures")
  local history = require("history")
  local places = require("places")
  commands["unfail"] = function(now, ARGV)
    local queue = calls.text("Unfail", "queue", ARGV[3])
    local group = calls.text("Unfail", "group", ARGV[4])
    local count = calls.number("Unfail", "count", ARGV[5] or 25)
    local key = "ql:f:" .. group
    local jids = redis.call("LRANGE", key, -count, -1)
    for _, jid in ipairs(jids) do
      local held = redis.call("HMGET", "ql:j:" .. jid, "priority", "retries")
      if held[2] then
        redis.call(
          "HMSET", "ql:j:" .. jid,
          "state", "waiting", "worker", "", "expires", 0, "queue", queue, "remaining", held[2]
        )
        history.add(jid, now, "put", { q = queue })
        places.work(queue, jid, held[1], now)
      end
    end
    redis.call("LTRIM", key, 0, -count - 1)
    failures.tidy(group)
    return #jids
  end
end

do
  commands["unpause"] = function(_, ARGV)
    local queues = rest(ARGV, 3)
    redis.call("SREM", "ql:paused_queues", unpack(queues))
  end
end

do
  commands["unrecur"] = function(_, ARGV)
    local jid = calls.text("Unrecur", "jid", ARGV[3])
    local queue = redis.call("HGET", "ql:r:" .. jid, "queue")
    if queue then
      redis.call("ZREM", "ql:q:" .. queue .. "-recur", jid)
      redis.call("DEL", "ql:r:" .. jid)
    end
    return 1
  end
end

do
  commands["worker.deregister"] = function(_, ARGV)
    local workers = rest(ARGV, 3)
    redis.call("ZREM", "ql:workers", unpack(workers))
  end
end

do
  local config = require("config")
  commands["workers"] = function(now, ARGV)
    local words = rest(ARGV, 3)
    -- Workers that were not seen for a day are forgotten.
    local oldest = now - config.number("max-worker-age", 86400)
    for _, worker in ipairs(redis.call("ZRANGEBYSCORE", "ql:workers", "-inf", oldest)) do
      redis.call("ZREM", "ql:workers", worker)
      redis.call("DEL", "ql:w:" .. worker .. ":jobs")
    end
    local latest = now + 8640000
    if words[1] then
      local key = "ql:w:" .. words[1] .. ":jobs"
      return cjson.encode({
        jobs = redis.call("ZREVRANGEBYSCORE", key, latest, now),
        stalled = redis.call("ZREVRANGEBYSCORE", key, now, 0),
      })
    end
    local counted = {}
    for index, worker in ipairs(redis.call("ZREVRANGE", "ql:workers", 0, -1)) do
      local key = "ql:w:" .. worker .. ":jobs"
      counted[index] = {
        name = worker,
        jobs = redis.call("ZCOUNT", key, now, latest),
        stalled = redis.call("ZCOUNT", key, 0, now),
      }
    end
    return cjson.encode(counted)
  end
end

local function call(KEYS, ARGV)
  if #KEYS > 0 then
    error("No Keys should be provided")
  end
  local command = commands[ARGV[1] or error("No command given")]
  if not command then
    error("Unknown command " .. ARGV[1])
  end
  local now = tonumber(ARGV[2])
  if not now or now - now ~= 0 then
    error(ARGV[1] .. '(): Arg "now" missing or not a number: ' .. tostring(ARGV[2]))
  end
  return command(now, ARGV)
end

-- Functions; as a script, the text ends here in: return call(KEYS, ARGV)
redis.register_function("qless", call)

redis.register_function("qless_version", function()
  return REVISION
end)

--- Run a command for a function of the older form.
local function run(name, now, words, more)
  local all = { name, now }
  for _, word in ipairs(words) do
    all[#all + 1] = word
  end
  for _, word in ipairs(more or {}) do
    all[#all + 1] = word
  end
  return commands[name](now, all)
end

-- Refusals are replied, not raised: to what is raised, the server adds its line in this text.
local function register(name, title, keys, words, callback)
  local function call(KEYS, ARGV)
    if #KEYS ~= keys then
      calls.refuse(title, name .. " takes " .. keys .. " keys, got " .. #KEYS)
    elseif words and #ARGV > words then
      calls.refuse(title, name .. " takes at most " .. words .. " arguments, got " .. #ARGV)
    end
    return callback(KEYS, ARGV)
  end
  redis.register_function(name, function(KEYS, ARGV)
    local is_done, reply = pcall(call, KEYS, ARGV)
    if is_done then
      return reply
    end
    return { err = type(reply) == "table" and reply.err or "ERR " .. reply:gsub("^user_function:%d+: ", "") }
  end)
end

do
  register("qless_cancel", "Cancel", 0, nil, function(KEYS, ARGV)
    local jid = calls.name("Cancel", "jid", ARGV[1])
    local more = calls.names("Cancel", "more", rest(ARGV, 2))
    run("cancel", 0, { jid }, more)
  end)
end

do
  local older = require("older")
  register("qless_complete", "Complete", 0, nil, function(KEYS, ARGV)
    local jid = calls.name("Complete", "jid", ARGV[1])
    local worker = calls.name("Complete", "worker", ARGV[2])
    local queue = calls.name("Complete", "queue", ARGV[3])
    local now = calls.number("Complete", "now", ARGV[4])
    local data = calls.json("Complete", "data", ARGV[5])
    local words = rest(ARGV, 6)
    older.options("Complete", words, { next = calls.name, delay = calls.number, depends = older.distinct })
    local job = older.running(jid, worker)
    if not job then
      return nil
    end
    local state = run("complete", now, { jid, worker, job.queue or queue, data }, words)
    older.see(now, worker)
    if state == "scheduled" then
      -- The command leaves `waiting`, which contradicts its own reply.
      redis.call("HSET", "ql:j:" .. jid, "state", state)
    end
    return state
  end)
end

do
  local consistency = require("consistency")
  local older = require("older")
  register("qless_consistencyCheck", "ConsistencyCheck", 0, nil, function(KEYS, ARGV)
    local words = rest(ARGV, 1)
    local change = words[1] or ""
    if change ~= "" and change ~= "resolve" and change ~= "1" then
      calls.refuse("ConsistencyCheck", 'Unknown option "' .. change .. '"')
    end
    older.most("ConsistencyCheck", words, 3)
    local resolve = change ~= ""
    local cursor, key, found = words[2], words[3], {}
    local now = tonumber(redis.call("TIME")[1])
    if key then
      local rest, size = consistency.add(found, now, key, resolve, cursor)
      found.cursor, found.checked = rest or "0", size
      return cjson.encode(found)
    end
    local large, next_cursor, checked = {}, cursor or "0", 0
    repeat
      local page = redis.call("SCAN", next_cursor, "MATCH", "ql:*", "COUNT", 200)
      next_cursor, checked = page[1], checked + #page[2]
      for _, each in ipairs(page[2]) do
        local rest = consistency.add(found, now, each, resolve)
        if cursor and rest then
          large[#large + 1] = each
        end
        while not cursor and rest do
          rest = consistency.add(found, now, each, resolve, rest)
        end
      end
    until cursor or next_cursor == "0"
    if not cursor then
      return cjson.encode(found)
    end
    found.cursor, found.checked = next_cursor, checked
    return older.object(found, { large = older.array(large) })
  end)
end

do
  register("qless_depends", "Depends", 0, nil, function(KEYS, ARGV)
    local jid = calls.name("Depends", "jid", ARGV[1])
    local change = calls.text("Depends", "change", ARGV[2])
    local others = calls.names("Depends", "others", rest(ARGV, 3))
    if change ~= "on" and change ~= "off" then
      calls.refuse("Depends", 'Arg "change" must be "on" or "off", got "' .. change .. '"')
    elseif redis.call("HGET", "ql:j:" .. jid, "state") ~= "depends" then
      return nil
    end
    -- This form names no time: the job is put as of when it began to wait.
    local queue = redis.call("HGET", "ql:j:" .. jid, "queue")
    local since = redis.call("ZSCORE", "ql:q:" .. queue .. "-depends", jid)
    return run("depends", tonumber(since) or 0, { jid, change }, others)
  end)
end

do
  local failures = require("failures")
  local history = require("history")
  local jobs = require("jobs")
  local messages = require("messages")
  local older = require("older")
  register("qless_fail", "Fail", 0, 6, function(KEYS, ARGV)
    local jid = calls.name("Fail", "jid", ARGV[1])
    local worker = calls.name("Fail", "worker", ARGV[2])
    local group = calls.name("Fail", "group", ARGV[3])
    local message = calls.text("Fail", "message", ARGV[4])
    local now = calls.number("Fail", "now", ARGV[5])
    local data = ARGV[6] and calls.json("Fail", "data", ARGV[6])
    local job = jobs.read(jid)
    if not job then
      return nil
    elseif job.state == "running" and job.worker == worker then
      older.see(now, worker)
    elseif job.state == "running" then
      messages.lock_lost(jid, job.worker)
    elseif job.state == "failed" then
      failures.remove(job.queue, jid, job.failure)
    elseif job.state == "complete" then
      redis.call("ZREM", "ql:completed", jid)
      -- A completed job is in no queue: its failure counts in the last one.
      for _, entry in ipairs(history.read(jid)) do
        job.queue = entry.q or job.queue
      end
      redis.call("HSET", "ql:j:" .. jid, "queue", job.queue)
    end
    failures.fail(now, job, { group = group, message = message, worker = worker }, data)
    return jid
  end)
end

do
  local jobs = require("jobs")
  local older = require("older")
  register("qless_failed", "Failed", 0, 3, function(KEYS, ARGV)
    local group = ARGV[1] and calls.name("Failed", "group", ARGV[1])
    local start = calls.offset("Failed", "start", ARGV[2] or 0)
    local limit = calls.count("Failed", "limit", ARGV[3] or 25)
    if not group then
      return run("failed", 0, {})
    end
    local key = "ql:f:" .. group
    local texts = {}
    for _, job in ipairs(jobs.list(redis.call("LRANGE", key, start, start + limit - 1))) do
      texts[#texts + 1] = older.text(job, { message = job.failure.message, type = job.failure.group })
    end
    return older.object({ total = redis.call("LLEN", key) }, { jobs = older.join(texts) })
  end)
end

do
  local jobs = require("jobs")
  local older = require("older")
  register("qless_get", "Get", 0, 1, function(KEYS, ARGV)
    local jid = calls.name("Get", "jid", ARGV[1])
    local job = jobs.show(jid)
    return job and older.text(job)
  end)
end

do
  local older = require("older")
  register("qless_getConfig", "GetConfig", 0, 1, function(KEYS, ARGV)
    local option = ARGV[1] and calls.name("GetConfig", "option", ARGV[1])
    if option then
      return run("config.get", 0, { older.option(option) })
    end
    local named = {}
    for name, value in pairs(cjson.decode(run("config.get", 0, {}))) do
      local queue = name:match("^(.+)%-heartbeat$")
      named[queue and "heartbeat-" .. queue or name] = value
    end
    return cjson.encode(named)
  end)
end

do
  local older = require("older")
  register("qless_heartbeat", "Heartbeat", 0, 4, function(KEYS, ARGV)
    local jid = calls.name("Heartbeat", "jid", ARGV[1])
    local worker = calls.name("Heartbeat", "worker", ARGV[2])
    local now = calls.number("Heartbeat", "now", ARGV[3])
    local data = ARGV[4] and calls.json("Heartbeat", "data", ARGV[4])
    if not older.running(jid, worker) then
      return nil
    end
    run("heartbeat", now, { jid, worker })
    local key = "ql:j:" .. jid
    if data then
      redis.call("HSET", key, "data", data)
    end
    return redis.call("HGET", key, "expires")
  end)
end

do
  local older = require("older")
  register("qless_jobs", "Jobs", 0, nil, function(KEYS, ARGV)
    local state = calls.text("Jobs", "state", ARGV[1])
    local words = rest(ARGV, 2)
    local is_complete = state == "complete"
    local now = is_complete and 0 or calls.number("Jobs", "now", table.remove(words, 1))
    local queue = not is_complete and calls.name("Jobs", "queue", table.remove(words, 1))
    older.most("Jobs", words, 2)
    local offset = calls.offset("Jobs", "offset", words[1] or 0)
    local count = words[2] and calls.count("Jobs", "count", words[2])
    if is_complete then
      return run("jobs", now, { state, offset, count })
    elseif state == "scheduled" then
      -- The command makes those ready that are due.
      return redis.call("ZRANGEBYSCORE", "ql:q:" .. queue .. "-scheduled", "-inf", "+inf", "LIMIT", offset, count or -1)
    end
    return run("jobs", now, { state, queue, offset, count or -1 })
  end)
end

do
  local jobs = require("jobs")
  local older = require("older")
  local popping = require("popping")
  register("qless_peek", "Peek", 1, 2, function(KEYS, ARGV)
    local queue = calls.name("Peek", "queue", KEYS[1])
    local count = calls.count("Peek", "count", ARGV[1])
    local now = calls.number("Peek", "now", ARGV[2])
    return older.texts(jobs.list(popping.peek(now, queue, count)))
  end)
end

do
  local older = require("older")
  local popping = require("popping")
  register("qless_pop", "Pop", 1, 3, function(KEYS, ARGV)
    local queue = calls.name("Pop", "queue", KEYS[1])
    local worker = calls.name("Pop", "worker", ARGV[1])
    local count = calls.count("Pop", "count", ARGV[2])
    local now = calls.number("Pop", "now", ARGV[3])
    return older.texts(popping.pop(now, queue, worker, count, 0))
  end)
end

do
  local jobs = require("jobs")
  local older = require("older")
  register("qless_priority", "Priority", 0, 2, function(KEYS, ARGV)
    local jid = calls.name("Priority", "jid", ARGV[1])
    local priority = calls.number("Priority", "priority", ARGV[2])
    local job = jobs.read(jid)
    if not job then
      return nil
    end
    local stored = older.flip(priority)
    local work = "ql:q:" .. (job.queue or "") .. "-work"
    if redis.call("ZSCORE", work, jid) then
      redis.call("ZINCRBY", work, stored - (tonumber(job.priority) or 0), jid)
    end
    redis.call("HSET", "ql:j:" .. jid, "priority", stored)
    return priority % 1 == 0 and priority or tostring(priority)
  end)
end

do
  local creation = require("creation")
  local older = require("older")
  register("qless_put", "Put", 1, nil, function(KEYS, ARGV)
    local queue = calls.name("Put", "queue", KEYS[1])
    local jid = calls.name("Put", "jid", ARGV[1])
    local klass = calls.text("Put", "klass", ARGV[2])
    local data = calls.json("Put", "data", ARGV[3])
    local now = calls.number("Put", "now", ARGV[4])
    local delay = calls.number("Put", "delay", ARGV[5])
    local words = rest(ARGV, 6)
    local READERS = { priority = calls.number, retries = older.retries, tags = older.distinct, depends = older.distinct }
    local options = older.options("Put", words, READERS, delay)
    options.priority = options.priority and older.flip(options.priority)
    return creation.put(
      now,
      { me = "", queue = queue, jid = jid, klass = klass, data = data, delay = delay, options = options }
    )
  end)
end

do
  local older = require("older")
  local places = require("places")
  register("qless_queues", "Queues", 0, 2, function(KEYS, ARGV)
    local now = calls.number("Queues", "now", ARGV[1])
    local queue = ARGV[2] and calls.name("Queues", "queue", ARGV[2])
    local function count(each)
      local counts = places.count(now, each)
      counts.paused = nil
      return counts
    end

    if queue then
      return cjson.encode(count(queue))
    end
    local counted = {}
    for index, each in ipairs(redis.call("ZRANGE", "ql:queues", 0, -1)) do
      counted[index] = count(each)
    end
    return older.array(counted)
  end)
end

do
  local jobs = require("jobs")
  local older = require("older")
  local places = require("places")
  local stats = require("stats")
  register("qless_retry", "Retry", 0, 5, function(KEYS, ARGV)
    local jid = calls.name("Retry", "jid", ARGV[1])
    local queue = calls.name("Retry", "queue", ARGV[2])
    local worker = calls.name("Retry", "worker", ARGV[3])
    local now = calls.number("Retry", "now", ARGV[4])
    local delay = calls.number("Retry", "delay", ARGV[5] or 0)
    local job = older.running(jid, worker)
    if not job then
      return nil
    end
    local remaining = run("retry", now, { jid, queue, worker, delay })
    older.see(now, worker)
    if remaining >= 0 then
      -- The command leaves the old queue and worker, and counts nothing.
      redis.call("HSET", "ql:j:" .. jid, "queue", queue, "worker", "", "expires", 0, "time", jobs.time(now))
      places.learn(now, queue)
      stats.count(now, job.queue, "retries", 1)
    end
    return remaining
  end)
end

do
  local older = require("older")
  register("qless_setConfig", "SetConfig", 0, 2, function(KEYS, ARGV)
    local option = calls.name("SetConfig", "option", ARGV[1])
    local value = ARGV[2] and calls.text("SetConfig", "value", ARGV[2])
    if value then
      return run("config.set", 0, { older.option(option), value })
    end
    return run("config.unset", 0, { older.option(option) })
  end)
end

do
  local older = require("older")
  local stats = require("stats")
  register("qless_stats", "Stats", 0, 2, function(KEYS, ARGV)
    local queue = calls.name("Stats", "queue", ARGV[1])
    local date = calls.number("Stats", "date", ARGV[2])
    -- Where the counts of each unit are: after 60 of seconds, 59 of minutes and 23 of hours.
    local FIRST = { s = 1, m = 60, h = 119, d = 142 }
    -- Longer than a year is counted as a year, since a wrong clock can make any number of days.
    local LEAST, MOST = 148, 142 + 365

    local function histogram(key)
      local counts = {}
      for index = 1, LEAST do
        counts[index] = 0
      end
      local held = redis.call("HGETALL", key)
      for index = 1, #held, 2 do
        local unit, number = held[index]:match("^([smhd])(%-?%d+)$")
        if unit then
          local place = math.min(FIRST[unit] + math.max(tonumber(number), 0), MOST)
          for missing = #counts + 1, place do
            counts[missing] = 0
          end
          counts[place] = counts[place] + tonumber(held[index + 1])
        end
      end
      return counts
    end

    local found = stats.read(queue, date)
    local texts = {}
    for _, kind in ipairs({ "wait", "run" }) do
      local durations = found[kind]
      durations.total, durations.variance = durations.count, durations.std ^ 2
      durations.histogram = histogram("ql:s:" .. kind .. ":" .. stats.day(date) .. ":" .. queue)
      texts[kind] = cjson.encode(durations)
      found[kind] = nil
    end
    return older.object(found, texts)
  end)
end

do
  local older = require("older")
  register("qless_tag", "Tag", 0, nil, function(KEYS, ARGV)
    local verb = calls.text("Tag", "verb", ARGV[1])
    local words = rest(ARGV, 2)
    if verb == "get" or verb == "top" then
      local tag = verb == "get" and calls.name("Tag", "tag", table.remove(words, 1))
      older.most("Tag", words, 2)
      local page = { calls.offset("Tag", "offset", words[1] or 0), calls.count("Tag", "count", words[2] or 25) }
      local found = cjson.decode(run("tag", 0, { verb, tag or nil }, page))
      return tag and older.object({ total = found.total }, { jobs = older.array(found.jobs) }) or older.array(found)
    elseif verb ~= "add" and verb ~= "remove" then
      calls.refuse("Tag", 'Arg "verb" must be "add", "remove", "get" or "top", got "' .. verb .. '"')
    end
    local jid = calls.name("Tag", "jid", table.remove(words, 1))
    local now = calls.number("Tag", "now", table.remove(words, 1))
    calls.name("Tag", "tag", words[1])
    calls.names("Tag", "tag", words)
    local encoded = redis.call("HGET", "ql:j:" .. jid, "tags")
    if not encoded then
      return nil
    end
    local has, changed = {}, {}
    for _, tag in ipairs(cjson.decode(encoded)) do
      has[tostring(tag)] = true
    end
    for _, tag in ipairs(words) do
      if (has[tag] or false) == (verb == "remove") then
        changed[#changed + 1] = tag
        has[tag] = verb == "add"
      end
    end
    return older.array(cjson.decode(run("tag", now, { verb, jid }, changed)))
  end)
end

do
  local jobs = require("jobs")
  local older = require("older")
  register("qless_track", "Track", 0, nil, function(KEYS, ARGV)
    local words = rest(ARGV, 1)
    local verb = words[1]
    if not verb then
      local texts, expired = {}, {}
      for _, jid in ipairs(redis.call("ZRANGE", "ql:tracked", 0, -1)) do
        local job = jobs.show(jid)
        if job then
          texts[#texts + 1] = older.text(job)
        else
          expired[#expired + 1] = jid
        end
      end
      return older.object({}, { jobs = older.join(texts), expired = older.array(expired) })
    elseif verb ~= "track" and verb ~= "untrack" then
      calls.refuse("Track", 'Arg "verb" must be "track" or "untrack", got "' .. verb .. '"')
    end
    local jid = calls.name("Track", "jid", words[2])
    if verb == "track" then
      local now = calls.number("Track", "now", words[3])
      redis.call("PUBLISH", "ql:track", jid)
      return redis.call("ZADD", "ql:tracked", now, jid)
    end
    older.most("Track", words, 3)
    redis.call("PUBLISH", "ql:untrack", jid)
    return redis.call("ZREM", "ql:tracked", jid)
  end)
end

do
  local older = require("older")
  register("qless_workers", "Workers", 0, 2, function(KEYS, ARGV)
    local now = calls.number("Workers", "now", ARGV[1])
    local worker = ARGV[2] and calls.name("Workers", "worker", ARGV[2])
    local found = cjson.decode(run("workers", now, { worker }))
    if worker then
      return older.object({}, { jobs = older.array(found.jobs), stalled = older.array(found.stalled) })
    end
    return older.array(found)
  end)
end
