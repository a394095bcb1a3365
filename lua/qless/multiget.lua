--- Return several jobs.
--- @arg*    jids text their ids
--- @returns JSON, an array without those that do not exist
--- @cost    O(H + D) per job

local jobs = require("jobs")

return cjson.encode(jobs.list(jids))
