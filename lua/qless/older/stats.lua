--- Return the statistics of a queue on a day.
--- @arg     queue text   the queue
--- @arg     date  number a time of that day
--- @returns JSON, as the command `stats` does
--- @cost    O(1)

return run("stats", 0, { queue, date })
