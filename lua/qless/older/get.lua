--- Return a job. A lower `priority` comes first.
--- @arg     jid name its id
--- @returns JSON, or nil when it does not exist
--- @cost    O(H + D) of its history and dependencies

local jobs = require("jobs")
local older = require("older")

local job = jobs.show(jid)
return job and older.text(job)
