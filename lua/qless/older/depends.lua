--- Have a job that waits for others wait for more or fewer.
--- @arg  jid    name its id
--- @arg  change text `on` or `off`
--- @arg* others name ids of other jobs; after `off` also `all`
--- @returns 1, or nil when it does not wait for others
--- @error   neither `on` nor `off`
--- @cost    O(log N) per job

local calls = require("calls")

if change ~= "on" and change ~= "off" then
  calls.refuse("Depends", 'Arg "change" must be "on" or "off", got "' .. change .. '"')
elseif redis.call("HGET", "ql:j:" .. jid, "state") ~= "depends" then
  return nil
end
-- This form names no time: the job is put as of when it began to wait.
local queue = redis.call("HGET", "ql:j:" .. jid, "queue")
local since = redis.call("ZSCORE", "ql:q:" .. queue .. "-depends", jid)
return run("depends", tonumber(since) or 0, { jid, change }, others)
