--- Return how many jobs failed per group, or the jobs of one group, the newest first.
--- @arg* words text none, or a group, the index of the first and that of the last
--- @returns JSON: counts by group, or `total` and `jobs`
--- @cost    O(G) of the groups, O(S + M) for M found

local older = require("older")

local group = words[1]
if not group then
  return run("failed", 0, {})
end
local key = "ql:f:" .. group
local found = {}
for index, jid in ipairs(redis.call("LRANGE", key, words[2] or 0, words[3] or 25)) do
  found[index] = older.show(jid)
end
return cjson.encode({ total = redis.call("LLEN", key), jobs = found })
