--- Return the statistics of a queue on a day.
--- @arg     queue text   the queue
--- @arg     date  number a time of that day
--- @returns JSON: `retries`, `failed`, `failures`, and `wait` and `run` with `count`, `mean`, `std` and `histogram`
--- @cost    O(1)

local stats = require("stats")

return cjson.encode(stats.read(queue, date))
