--- Have a running job run again: it moves to the queue.
--- @arg  jid    name   its id
--- @arg  queue  name   where it waits
--- @arg  worker name   its worker
--- @arg  now    number the time in seconds
--- @arg  delay  number =0 seconds to wait
--- @returns how many retries it has left, -1 when it failed; nil when it does not run for this worker
--- @cost    O(log N)

local history = require("history")
local jobs = require("jobs")
local older = require("older")
local places = require("places")
local stats = require("stats")

local job = older.running(jid, worker)
if not job then
  return nil
end
-- Without retries left it fails where it ran.
local is_last = (tonumber(job.remaining) or 0) < 1
local remaining = run("retry", now, { jid, is_last and job.queue or queue, worker, delay })
older.see(now, worker)
if remaining >= 0 then
  -- The command leaves the old worker, and counts nothing.
  redis.call("HSET", "ql:j:" .. jid, "worker", "", "expires", 0, "time", jobs.time(now))
  places.learn(now, queue)
  if queue ~= job.queue then
    history.add(jid, now, "put", { q = queue })
  end
  stats.count(now, job.queue, "retries", 1)
end
return remaining
