--- Hand out jobs. A job whose lock expired is taken from its worker at once.
--- @key  queue  name   of this queue
--- @arg  worker text   to this worker
--- @arg  count  number at most this many
--- @arg  now    number the time in seconds
--- @returns JSON texts, a job each
--- @cost    O(log N) per job

local older = require("older")
local popping = require("popping")

return older.list(popping.pop(now, queue, worker, count, 0))
