--- Track a job's events, stop that, or return the tracked jobs.
--- @arg* words text none, or `track`, an id and the time, or `untrack` and an id
--- @returns JSON: `jobs` and the ids of those `expired`, or how many jobs that changed
--- @cost    O(log N), or O(H + D) per tracked job

local calls = require("calls")
local older = require("older")

local verb = words[1]
if not verb then
  local found = { jobs = {}, expired = {} }
  for _, jid in ipairs(redis.call("ZRANGE", "ql:tracked", 0, -1)) do
    local job = older.show(jid)
    local list = job and found.jobs or found.expired
    list[#list + 1] = job or jid
  end
  return cjson.encode(found)
end
local jid = calls.text("Track", "jid", words[2])
if verb == "track" then
  local now = calls.number("Track", "now", words[3])
  redis.call("PUBLISH", "ql:track", jid)
  return redis.call("ZADD", "ql:tracked", now, jid)
elseif verb == "untrack" then
  redis.call("PUBLISH", "ql:untrack", jid)
  return redis.call("ZREM", "ql:tracked", jid)
end
calls.refuse("Track", "Unknown action " .. verb)
