--- Count the jobs of all workers, or list those of one.
--- @arg  now    number the time in seconds
--- @arg  worker name?  one worker
--- @returns JSON: an array of `name`, `jobs` and `stalled`, the last seen first, or the ids as `jobs` and `stalled`
--- @cost    O(log N) per worker, O(log N + M) for M jobs of one

local older = require("older")

local found = cjson.decode(run("workers", now, { worker }))
if worker then
  -- The command lists a job whose lock expires at this very time twice.
  found.jobs = redis.call("ZREVRANGEBYSCORE", "ql:w:" .. worker .. ":jobs", "+inf", "(" .. now)
  return older.object({}, { jobs = older.array(found.jobs), stalled = older.array(found.stalled) })
end
return older.array(found)
