--- Complete a job, or its work in one queue. The queue is not checked.
--- @arg  jid    text   its id
--- @arg  worker text   its worker
--- @arg  queue  text   its queue
--- @arg  now    number the time in seconds
--- @arg  data   json   its data
--- @arg* words  text   `next` queue, `delay` n, `depends` json
--- @returns the job's state; nil when it does not run for this worker
--- @cost    O(log N), and O(log N) per dependent

local older = require("older")

local job = older.running(jid, worker)
return job and run("complete", now, { jid, worker, job.queue or queue, data }, words)
