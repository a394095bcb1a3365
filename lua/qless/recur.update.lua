--- Change a recurring job.
--- @arg  jid   text its id
--- @arg* words text `priority`, `interval`, `retries`, `data`, `klass`, `queue` and `backlog`, each with its value
--- @returns 1
--- @error   the job does not exist
--- @cost    O(log N)

local calls = require("calls")
local places = require("places")

local number = calls.number
local READERS = {
  priority = number, interval = number, retries = number, backlog = number,
  data = calls.json, klass = calls.text, queue = calls.text,
}
for index = 1, #words, 2 do
  if not READERS[words[index]] then
    calls.refuse("Recur", 'Unrecognized option "' .. words[index] .. '"')
  end
end
local changes = calls.options("Recur", words, READERS)
if changes.interval and changes.interval <= 0 then
  calls.refuse("Recur", "interval must be greater than 0")
end
local key = "ql:r:" .. jid
local held = redis.call("HMGET", key, "queue", "interval")
if not held[1] then
  calls.refuse("Recur", "No recurring job " .. jid)
end
local queue, interval = held[1], tonumber(held[2])
if changes.interval then
  redis.call("ZINCRBY", "ql:q:" .. queue .. "-recur", changes.interval - interval, jid)
end
if changes.queue then
  local due = redis.call("ZSCORE", "ql:q:" .. queue .. "-recur", jid)
  redis.call("ZREM", "ql:q:" .. queue .. "-recur", jid)
  redis.call("ZADD", "ql:q:" .. changes.queue .. "-recur", due, jid)
  places.learn(now, changes.queue)
end
for name, value in pairs(changes) do
  redis.call("HSET", key, name, value)
end
return 1
