--- Fail a job for good.
--- @arg  jid     text its id
--- @arg  worker  text its worker
--- @arg  group   text the kind of failure
--- @arg  message text what happened
--- @arg* words   text its new data, as JSON
--- @returns the jid
--- @error   it does not run, or not for this worker
--- @cost    O(log N)

local calls = require("calls")
local failures = require("failures")
local history = require("history")
local jobs = require("jobs")
local messages = require("messages")
local places = require("places")

local data = words[1] and calls.decoded("Fail", "data", words[1])
local job = jobs.read_running("Fail", jid, worker)
messages.log("failed", { jid = jid, worker = worker, group = group, message = message })
messages.tracked("failed", jid)
places.release(worker, jid)
history.add(jid, now, "failed", { worker = worker, group = group })
places.leave(job.queue, jid)
if data then
  redis.call("HSET", "ql:j:" .. jid, "data", cjson.encode(data))
end
local failure = { group = group, message = message, when = math.floor(now), worker = worker }
redis.call(
  "HMSET", "ql:j:" .. jid,
  "state", "failed", "worker", "", "expires", "", "failure", cjson.encode(failure)
)
failures.add(now, job.queue, jid, group)
return jid
