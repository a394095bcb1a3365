--- Hand out jobs.
--- @arg     queue  text   of this queue
--- @arg     worker text   to this worker
--- @arg     count  number at most this many
--- @returns JSON, an array of jobs
--- @cost    O(log N) per job

local popping = require("popping")

return cjson.encode(popping.pop(now, queue, worker, count))
