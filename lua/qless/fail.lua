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
local jobs = require("jobs")

local data = words[1] and calls.decoded("Fail", "data", words[1])
local job = jobs.read_running("Fail", jid, worker)
failures.fail(now, job, { group = group, message = message, worker = worker }, data and cjson.encode(data))
return jid
