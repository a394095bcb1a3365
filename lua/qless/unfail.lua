--- Make jobs of a failure group ready, those first that failed first.
--- @arg     queue text   where they go
--- @arg     group text   the group
--- @arg     count number =25 at most this many
--- @returns how many
--- @cost    O(log N) per job

local failures = require("failures")
local history = require("history")
local places = require("places")

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
