--- List jobs of a tag, oldest first, and remove from its index those that no longer exist.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @arg   tag                  text         the tag
--- @arg   offset               int          how many jobs to skip
--- @arg   limit                int          most jobs to list, at most 1,000
--- @returns array 1: ids of jobs; 2: 1 when there may be more, else 0
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for a limit of 0 or above 1,000
--- @cost    O(log N) per job, of which it checks at most 1,500

local tags = require("tags")
local validate = require("validate")

if limit < 1 or limit > 1000 then
  validate.refuse("tagged", "the limit must be 1 to 1000")
end
local found, more = tags.page(queue, tag, offset, limit)
return { found, more and 1 or 0 }
