--- Remove jobs, or none when another job depends on one of them. Completed jobs stay.
--- @arg* jids text their ids
--- @returns nil
--- @error   a job that is not named depends on one of them
--- @cost    O(log N) per job

run("cancel", 0, {}, jids)
