--- Return the jobs that would be handed out next.
--- @key  queue name   of this queue
--- @arg  count count  at most this many
--- @arg  now   number the time in seconds
--- @returns JSON texts, a job each
--- @cost    O(log N) per job

local jobs = require("jobs")
local older = require("older")
local popping = require("popping")

return older.texts(jobs.list(popping.peek(now, queue, count, true)))
