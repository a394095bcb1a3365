--- Return the jobs that would be handed out next.
--- @arg     queue text   of this queue
--- @arg     count number at most this many
--- @returns JSON, an array of jobs
--- @cost    O(log N) per job

local jobs = require("jobs")
local popping = require("popping")

return jobs.encode(popping.peek(now, queue, count))
