--- Remove jobs, or none when another job depends on one of them. Completed jobs stay.
--- @arg  jid  name its id
--- @arg* more name ids of other jobs
--- @returns nil
--- @error   a job that is not named depends on one of them
--- @cost    O(log N) per job

run("cancel", 0, { jid }, more)
