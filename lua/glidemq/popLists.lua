--- Take ready jobs: from the priority list, or from the LIFO list when that is empty.
--- @queue   priority
--- @key   priority             list         ready jobs that run first
--- @key   lifo                 list         ready jobs, newest first
--- @arg   count                int =1       most jobs to take
--- @returns texts job ids, possibly none; the caller adds their number to `list-active`
--- @cost    O(count)

local lists = require("lists")

if count <= 0 then
  return {}
end
return lists.taken(queue, lists.pop(queue, count))
