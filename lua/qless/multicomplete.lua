--- Complete jobs of one worker and queue, as `complete` does one by one. An addition to the core's commands.
--- @arg  worker text their worker
--- @arg  queue  text their queue
--- @arg* words  text an id and its data as JSON for each job, at most 100
--- @returns an array, for each job in order: `complete`, or why it was refused
--- @cost    O(log N) per job, and O(log N) per dependent and per completed job that is forgotten

local calls = require("calls")
local completion = require("completion")

if #words == 0 or #words % 2 == 1 or #words > 200 then
  calls.refuse("Multicomplete", "takes an id and data for each of 1 to 100 jobs, got " .. #words .. " words")
end
local replies, list, by_jid = {}, {}, {}

local function read(jid, data)
  if by_jid[jid] then
    calls.refuse("Complete", "Job " .. jid .. " is not currently running: complete")
  end
  return completion.read(jid, worker, queue, calls.json("Complete", "data", data))
end

for index = 1, #words, 2 do
  local jid = words[index]
  local is_read, job = pcall(read, jid, words[index + 1])
  if is_read then
    list[#list + 1], by_jid[jid] = job, #replies + 1
  end
  replies[#replies + 1] = is_read and "complete" or calls.reason(job)
end
local left, refusal = completion.leave(now, list)
if #left < #list then
  for _, job in ipairs(list) do
    replies[by_jid[job.jid]] = calls.reason(refusal)
  end
  for _, job in ipairs(left) do
    replies[by_jid[job.jid]] = "complete"
  end
end
if left[1] then
  completion.finish(now, left)
end
return replies
