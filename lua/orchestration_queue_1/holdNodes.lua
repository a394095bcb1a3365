--- Keep jobs of a graph that still wait for others from starting, until `oq1_releaseGraph` names them.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @arg   job_count            int #job_ids how many follow
--- @arg*  job_ids              text         jobs; one that has no dependencies left, has run or has ended is not held
--- @returns texts those that are held now
--- @error   the stream key does not end in `:stream`
--- @cost    O(1) per job, about 3 us

local holding = require("holding")

local held = {}
for _, job_id in ipairs(job_ids) do
  if holding.hold(queue, job_id) then
    held[#held + 1] = job_id
  end
end
return held
