--- Make dead jobs ready again.
--- @key   dead_letters         stream       the dead-letter queue
--- @key   stream               stream       ready and running jobs
--- @arg   max_length           int          about how many jobs the stream may hold
--- @arg   letter_count         int #letters how many follow
--- @each    letters Replayed: a dead letter to run again
--- @arg   entry_id             text         its entry in the dead-letter queue
--- @arg   envelope             bytes        the job, without failed attempts
--- @arg   job_name             text         its name; may be empty
--- @end     letters
--- @returns int how many were still there
--- @cost    O(1) per letter

local jobs = require("jobs")

local replayed = 0
for _, letter in ipairs(letters) do
  if redis.call("XDEL", dead_letters_key, letter.entry_id) == 1 then
    jobs.publish(stream_key, max_length, letter.job_name, letter.envelope)
    replayed = replayed + 1
  end
end
return replayed
