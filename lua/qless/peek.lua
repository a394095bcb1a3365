--- Return the jobs that would be handed out next.
--- @arg  queue text   of this queue
--- @arg  count number at most this many
--- @arg* words text   the count, when an offset comes before it, as reqless has it
--- @returns JSON, an array of jobs
--- @cost    O(log N) per job

local calls = require("calls")
local jobs = require("jobs")
local popping = require("popping")

if not words[1] then
  return cjson.encode(jobs.list(popping.peek(now, queue, count)))
end
local offset, total = count, calls.number("Peek", "count", words[1])
local jids = popping.peek(now, queue, offset + total)
local page = {}
for index = offset + 1, #jids do
  page[#page + 1] = jids[index]
end
return cjson.encode(jobs.list(page))
