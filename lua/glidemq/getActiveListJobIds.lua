--- List the jobs that are active from a list.
--- @queue   id
--- @key   id                   string       counter of automatic ids
--- @arg   start                int =0       first index
--- @arg   stop                 int =-1      last index, inclusive; negative for no bound
--- @returns texts job ids
--- @cost    O(A) for A active list jobs; a scan of the keys when another library activated some

local lists = require("lists")

local active = lists.all(queue)
local last = stop < 0 and #active or stop + 1
local job_ids = {}
for index = start + 1, math.min(last, #active) do
  job_ids[#job_ids + 1] = active[index].id
end
return job_ids
