--- Tag a job, or find jobs and tags.
--- @arg  verb  text `add` or `remove` (a jid, the time, tags), `get` (a tag, the first index, the last) or `top`
--- @arg* words text what follows the verb
--- @returns JSON: the job's tags, nil when it does not exist, `total` and `jobs`, or tags
--- @cost    O(log N) per tag, O(log N + M) for M found

local calls = require("calls")

if verb == "get" then
  local key = "ql:t:" .. calls.text("Tag", "tag", words[1])
  local jids = redis.call("ZRANGE", key, words[2] or 0, words[3] or 25)
  return cjson.encode({ total = redis.call("ZCARD", key), jobs = jids })
elseif verb == "top" then
  return run("tag", 0, { verb }, words)
end
local jid = calls.text("Tag", "jid", table.remove(words, 1))
local now = calls.number("Tag", "now", table.remove(words, 1))
return redis.call("EXISTS", "ql:j:" .. jid) == 1 and run("tag", now, { verb, jid }, words) or nil
