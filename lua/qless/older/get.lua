--- Return a job.
--- @arg     jid text its id
--- @returns JSON, or nil when it does not exist
--- @cost    O(H + D) of its history and dependencies

local older = require("older")

local job = older.show(jid)
return job and cjson.encode(job)
