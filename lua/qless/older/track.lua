--- Track a job's events, stop that, or return the tracked jobs.
--- @arg* words text none, or `track`, an id, the time and anything else, or `untrack`, an id and the time
--- @returns JSON: `jobs` and the ids of those `expired`, or how many jobs that changed
--- @error   an unknown verb
--- @cost    O(log N), or O(H + D) per tracked job

local calls = require("calls")
local jobs = require("jobs")
local older = require("older")

local verb = words[1]
if not verb then
  local texts, expired = {}, {}
  for _, jid in ipairs(redis.call("ZRANGE", "ql:tracked", 0, -1)) do
    local job = jobs.show(jid)
    if job then
      texts[#texts + 1] = older.text(job)
    else
      expired[#expired + 1] = jid
    end
  end
  return older.object({}, { jobs = older.join(texts), expired = older.array(expired) })
elseif verb ~= "track" and verb ~= "untrack" then
  calls.refuse("Track", 'Arg "verb" must be "track" or "untrack", got "' .. verb .. '"')
end
local jid = calls.name("Track", "jid", words[2])
if verb == "track" then
  local now = calls.number("Track", "now", words[3])
  redis.call("PUBLISH", "ql:track", jid)
  return redis.call("ZADD", "ql:tracked", now, jid)
end
older.most("Track", words, 3)
redis.call("PUBLISH", "ql:untrack", jid)
return redis.call("ZREM", "ql:tracked", jid)
