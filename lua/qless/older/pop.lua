--- Hand out jobs: those of the lowest priority first. A job whose lock expired is taken from its worker at once.
--- @key  queue  name   of this queue
--- @arg  worker name   to this worker
--- @arg  count  count  at most this many
--- @arg  now    number the time in seconds
--- @returns JSON texts, a job each
--- @cost    O(log N) per job

local older = require("older")
local popping = require("popping")

return older.texts(popping.pop(now, queue, worker, count, true))
