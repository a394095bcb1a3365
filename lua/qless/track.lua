--- Track a job's events, stop that, or return the tracked jobs.
--- @arg* words text none, or `track` or `untrack` and an id
--- @returns JSON: how many jobs that changed, or `jobs` and the ids of those `expired`
--- @error   the job does not exist
--- @cost    O(log N), or O(H + D) per tracked job

local calls = require("calls")
local jobs = require("jobs")

if not words[1] then
  local found = { jobs = {}, expired = {} }
  for _, jid in ipairs(redis.call("ZRANGE", "ql:tracked", 0, -1)) do
    local job = jobs.show(jid)
    local list = job and found.jobs or found.expired
    list[#list + 1] = job or jid
  end
  return cjson.encode(found)
end
local verb = words[1]:lower()
local jid = calls.text("Track", "jid", words[2])
if verb ~= "track" and verb ~= "untrack" then
  calls.refuse("Track", "Unknown action " .. words[1])
elseif redis.call("EXISTS", "ql:j:" .. jid) == 0 then
  calls.refuse("Track", "Job does not exist")
end
redis.call("PUBLISH", "ql:" .. verb, jid)
if verb == "track" then
  return cjson.encode(redis.call("ZADD", "ql:tracked", now, jid))
end
return cjson.encode(redis.call("ZREM", "ql:tracked", jid))
