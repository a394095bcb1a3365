--- Return how many jobs failed per group, or the jobs of one group, the newest first.
--- @arg  group name?     the kind of failure
--- @arg  start offset =0 how many are skipped
--- @arg  limit count =25  at most this many
--- @returns JSON: counts by group, or `total` and `jobs`, with `message` and `type` besides what `get` has
--- @cost    O(G) of the groups, O(S + M) for M found

local jobs = require("jobs")
local older = require("older")

if not group then
  return run("failed", 0, {})
end
local key = "ql:f:" .. group
local texts = {}
for _, job in ipairs(jobs.list(redis.call("LRANGE", key, start, start + limit - 1))) do
  texts[#texts + 1] = older.text(job, { message = job.failure.message, type = job.failure.group })
end
return older.object({ total = redis.call("LLEN", key) }, { jobs = older.join(texts) })
