--- Count the jobs of all workers, or list those of one.
--- @arg* words text none, or a worker
--- @returns JSON: an array of `name`, `jobs` and `stalled`, the last seen first, or the ids as `jobs` and `stalled`
--- @cost    O(log N) per worker, O(log N + M) for M jobs of one

local config = require("config")

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
