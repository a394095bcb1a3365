--- Have a job that waits for others wait for more or fewer.
--- @arg  jid    text its id
--- @arg  change text `on` or `off`
--- @arg* words  text ids of other jobs; after `off` also `all`
--- @returns 1, or nil when it does not wait for others
--- @cost    O(log N) per job

if redis.call("HGET", "ql:j:" .. jid, "state") ~= "depends" then
  return nil
end
-- This form names no time: the job is put as of when it began to wait.
local queue = redis.call("HGET", "ql:j:" .. jid, "queue")
local since = redis.call("ZSCORE", "ql:q:" .. queue .. "-depends", jid)
return run("depends", tonumber(since) or 0, { jid, change }, words)
