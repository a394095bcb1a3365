--- Extend the lock on a running job.
--- @arg  jid    text   its id
--- @arg  worker text   its worker
--- @arg  now    number the time in seconds
--- @arg* words  text   its new data, as JSON
--- @returns when the lock expires now; nil when it does not run for this worker
--- @cost    O(log N)

local older = require("older")

return older.running(jid, worker) and run("heartbeat", now, { jid, worker }, words)
