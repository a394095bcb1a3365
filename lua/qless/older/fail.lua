--- Fail a job for good. Its worker is not checked.
--- @arg  jid     text   its id
--- @arg  worker  text   ignored
--- @arg  group   text   the kind of failure
--- @arg  message text   what happened
--- @arg  now     number the time in seconds
--- @arg* words   text   its new data, as JSON
--- @returns the jid; nil when it does not run
--- @cost    O(log N)

local older = require("older")

local job = older.running(jid)
return job and run("fail", now, { jid, job.worker, group, message }, words)
