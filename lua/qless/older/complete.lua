--- Complete a job, or its work in one queue. The queue is not checked.
--- @arg  jid    name   its id
--- @arg  worker name   its worker
--- @arg  queue  name   its queue
--- @arg  now    number the time in seconds
--- @arg  data   json   its data
--- @arg* words  text   `next` queue, `delay` n or `depends` json
--- @returns the job's state; nil when it does not run for this worker
--- @error   an unknown option, both a delay and dependencies, or one of them without `next`
--- @cost    O(log N), and O(log N) per dependent

local calls = require("calls")
local older = require("older")

older.options("Complete", words, { next = calls.name, delay = calls.number, depends = older.distinct })
local job = older.running(jid, worker)
if not job then
  return nil
end
older.forget_delay(jid)
local state = run("complete", now, { jid, worker, job.queue or queue, data }, words)
older.see(now, worker)
if state == "scheduled" then
  -- The command leaves `waiting`, which contradicts its own reply.
  redis.call("HSET", "ql:j:" .. jid, "state", state)
end
return state
