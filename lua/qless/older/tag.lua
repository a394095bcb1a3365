--- Tag a job, or find jobs and tags. A tag that a job has already is not added again.
--- @arg  verb  text `add` or `remove` (a jid, the time, tags), `get` (a tag, an offset, a count) or `top` (an offset, a count)
--- @arg* words text what follows the verb
--- @returns JSON: the job's tags, nil when it does not exist, `total` and `jobs`, or tags
--- @error   an unknown verb
--- @cost    O(log N) per tag, O(log N + M) for M found

local calls = require("calls")
local older = require("older")

if verb == "get" or verb == "top" then
  local tag = verb == "get" and calls.name("Tag", "tag", table.remove(words, 1))
  older.most("Tag", words, 2)
  local page = { calls.offset("Tag", "offset", words[1] or 0), calls.count("Tag", "count", words[2] or 25) }
  local found = cjson.decode(run("tag", 0, { verb, tag or nil }, page))
  return tag and older.object({ total = found.total }, { jobs = older.array(found.jobs) }) or older.array(found)
elseif verb ~= "add" and verb ~= "remove" then
  calls.refuse("Tag", 'Arg "verb" must be "add", "remove", "get" or "top", got "' .. verb .. '"')
end
local jid = calls.name("Tag", "jid", table.remove(words, 1))
local now = calls.number("Tag", "now", table.remove(words, 1))
calls.name("Tag", "tag", words[1])
calls.names("Tag", "tag", words)
local encoded = redis.call("HGET", "ql:j:" .. jid, "tags")
if not encoded then
  return nil
end
local has, changed = {}, {}
for _, tag in ipairs(cjson.decode(encoded)) do
  has[tostring(tag)] = true
end
for _, tag in ipairs(words) do
  if (has[tag] or false) == (verb == "remove") then
    changed[#changed + 1] = tag
    has[tag] = verb == "add"
  end
end
return older.array(cjson.decode(run("tag", now, { verb, jid }, changed)))
