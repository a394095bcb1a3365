--- Correct the count of jobs that are active from a list.
--- @queue   id
--- @key   id                   string       counter of automatic ids
--- @returns int by how much the count was too high; negative when too low
--- @cost    O(A) for A active list jobs; a scan of the keys when the count is too high

local lists = require("lists")

return lists.heal(queue)
