--- Tag a job, or find jobs and tags.
--- @arg  verb  text `add` or `remove` (a jid, tags), `get` (a tag, offset, count) or `top` (offset, count)
--- @arg* words text what follows the verb
--- @returns JSON: the job's tags, `total` and `jobs`, or tags
--- @error   the job does not exist
--- @cost    O(log N) per tag, O(log N + M) for M found

local calls = require("calls")
local tags = require("tags")

local function page(offset, count)
  return calls.number("Tag", "offset", offset or 0), calls.number("Tag", "count", count or 25)
end

if verb == "get" then
  local tag = calls.text("Tag", "tag", words[1])
  local offset, count = page(words[2], words[3])
  local key = "ql:t:" .. tag
  local jids = redis.call("ZRANGE", key, offset, offset + count - 1)
  return cjson.encode({ total = redis.call("ZCARD", key), jobs = jids })
elseif verb == "top" then
  local offset, count = page(words[1], words[2])
  return cjson.encode(redis.call("ZREVRANGEBYSCORE", "ql:tags", "+inf", 2, "LIMIT", offset, count))
elseif verb ~= "add" and verb ~= "remove" then
  calls.refuse("Tag", 'First argument must be "add", "remove", "get" or "top": ' .. verb)
end
local jid = calls.text("Tag", "jid", words[1])
local encoded = redis.call("HGET", "ql:j:" .. jid, "tags")
if not encoded then
  calls.refuse("Tag", "Job " .. jid .. " does not exist")
end
local list, is_given = {}, {}
for index = 2, #words do
  is_given[words[index]] = true
end
local has = {}
for _, tag in ipairs(cjson.decode(encoded)) do
  if verb == "add" or not is_given[tostring(tag)] then
    list[#list + 1] = tag
    has[tostring(tag)] = true
  end
end
for index = 2, #words do
  local tag = words[index]
  if verb == "remove" then
    tags.remove(jid, tag)
  else
    if not has[tag] then
      list[#list + 1] = tag
      has[tag] = true
    end
    tags.add(now, jid, tag)
  end
end
local text = cjson.encode(list)
redis.call("HSET", "ql:j:" .. jid, "tags", text)
return text
