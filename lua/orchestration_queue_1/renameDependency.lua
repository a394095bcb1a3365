--- Let jobs wait for a moved job under its new name. Repeating it changes nothing more.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @arg   old                  text         the member of the moved job so far
--- @arg   new                  text         its member from now on
--- @arg   job_count            int #job_ids how many follow
--- @arg*  job_ids              text         the jobs that wait for it
--- @returns int how many waited for it by its old name
--- @error   the stream key does not end in `:stream`
--- @cost    O(1) per job

local moving = require("moving")

local renamed = 0
for _, job_id in ipairs(job_ids) do
  renamed = renamed + moving.rename(queue, job_id, old, new)
end
return renamed
