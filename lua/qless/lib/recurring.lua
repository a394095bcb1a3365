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
