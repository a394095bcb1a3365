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

--- Make or move a job. `new` has me, queue, jid, klass, data, delay, options, and whether it came by the older form.
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
    -- In the statistics of the queue where it goes, or in the older form of that where it failed.
    failures.remove(new.is_older and old.queue or queue, jid, old.failure)
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
