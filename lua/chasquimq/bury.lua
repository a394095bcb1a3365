--- Move a job that failed for good to the dead-letter queue.
--- @key   stream               stream       ready and running jobs
--- @key   dead_letters         stream       the dead-letter queue
--- @arg   group                text         the consumer group
--- @arg   entry_id             text         the delivered entry
--- @arg   max_dead             int          about how many dead letters are kept
--- @arg   envelope             bytes        the job
--- @arg   job_name             text         its name; may be empty
--- @arg   reason               text         why
--- @arg   detail               text         the error; may be empty
--- @returns int 1, or 0 when another worker settled the job
--- @cost    O(1)

local jobs = require("jobs")

if not jobs.take(stream_key, group, entry_id) then
  return 0
end
local letter = { envelope = envelope, n = job_name, source_id = entry_id, reason = reason, detail = detail }
jobs.bury(dead_letters_key, max_dead, letter)
return 1
