--- Return how many jobs failed per group, or the jobs of one group, the newest first.
--- @arg* words text none, or a group, a start and a limit
--- @returns JSON: counts by group, or `total` and `jobs`, ids
--- @cost    O(G) of the groups, O(S + M) for M found

local calls = require("calls")

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
