--- Count the jobs of all workers, or list those of one.
--- @arg  now   number the time in seconds
--- @arg* words text   none, or a worker
--- @returns JSON, as the command `workers` does
--- @cost    O(log N) per worker, O(log N + M) for M jobs of one

return run("workers", now, words)
