--- Tag the jobs that a recurring job makes from now on no more.
--- @arg  jid  text its id
--- @arg* tags text the tags
--- @returns JSON: the tags it still has
--- @error   the job does not exist
--- @cost    O(N) of its tags

local calls = require("calls")

local encoded = redis.call("HGET", "ql:r:" .. jid, "tags")
if not encoded then
  calls.refuse("Recur", "No recurring job " .. jid)
end
local gone, list = {}, {}
for _, tag in ipairs(tags) do
  gone[tag] = true
end
for _, tag in ipairs(cjson.decode(encoded)) do
  if not gone[tostring(tag)] then
    list[#list + 1] = tag
  end
end
local text = cjson.encode(list)
redis.call("HSET", "ql:r:" .. jid, "tags", text)
return text
