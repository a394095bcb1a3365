--- Hand out jobs.
--- @arg     queue  text   of this queue
--- @arg     worker text   to this worker
--- @arg     count  number at most this many
--- @returns JSON, an array of jobs
--- @cost    O(log N) per job

local jobs = require("jobs")
local popping = require("popping")

return jobs.encode(popping.pop(now, queue, worker, count))
