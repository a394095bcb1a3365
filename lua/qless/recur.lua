--- Make or replace a job that makes a new job every so often.
--- @arg  queue    text   where the new jobs go
--- @arg  jid      text   its id; theirs have a number at the end
--- @arg  klass    text   what runs them
--- @arg  data     json   their data, kept byte for byte
--- @arg  kind     text   `interval`
--- @arg  interval number seconds between two
--- @arg  offset   number seconds before the first
--- @arg* words    text   `priority` n, `tags` json, `retries` n, `backlog` n
--- @returns the jid
--- @cost    O(log N)

local calls = require("calls")
local places = require("places")

if kind ~= "interval" then
  calls.refuse("Recur", "schedule type " .. kind .. " unknown")
elseif interval <= 0 then
  calls.refuse("Recur", "interval must be greater than or equal to 0")
elseif #words % 2 == 1 then
  calls.refuse("Recur", "Odd number of additional args: " .. table.concat(words, " "))
end
local number = calls.number
local READERS = { priority = number, tags = calls.list, retries = number, backlog = number }
local options = calls.options("Recur", words, READERS)
local key = "ql:r:" .. jid
local old = redis.call("HGET", key, "queue")
if old and old ~= queue then
  redis.call("ZREM", "ql:q:" .. old .. "-recur", jid)
end
redis.call(
  "HMSET", key,
  "jid", jid, "klass", klass, "data", data, "priority", options.priority or 0,
  "tags", cjson.encode(options.tags or {}), "state", "recur", "queue", queue, "type", "interval",
  "interval", interval, "retries", options.retries or 0, "backlog", options.backlog or 0
)
redis.call("HSETNX", key, "count", 0)
redis.call("ZADD", "ql:q:" .. queue .. "-recur", now + offset, jid)
places.learn(now, queue)
return jid
