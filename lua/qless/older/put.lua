--- Make a job, or move one that exists.
--- @key  queue  name   where it goes
--- @arg  jid    text   its id
--- @arg  klass  text   what runs it
--- @arg  data   json   its data
--- @arg  now    number the time in seconds
--- @arg  delay  number seconds to wait
--- @arg* words  text   `priority` n, `tags` json, `retries` n, `depends` json
--- @returns the jid
--- @error   both a delay and dependencies
--- @cost    O(log N), and O(log N) per tag and dependency

local calls = require("calls")

for index = 1, #words, 2 do
  if words[index] == "depends" and delay > 0 and #calls.list("Put", "depends", words[index + 1]) > 0 then
    calls.refuse("Put", '"delay" and "depends" are not allowed to be used together')
  end
end
return run("put", now, { "", queue, jid, klass, data, delay }, words)
