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
