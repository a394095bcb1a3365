--- Have a running job run again.
--- @arg  jid    text   its id
--- @arg  queue  text   where it waits
--- @arg  worker text   its worker
--- @arg  now    number the time in seconds
--- @arg  delay  number =0 seconds to wait
--- @returns how many retries it has left, -1 when it failed; nil when it does not run for this worker
--- @cost    O(log N)

local older = require("older")

return older.running(jid, worker) and run("retry", now, { jid, queue, worker, delay })
