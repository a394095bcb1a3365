--- Move a repeatable job whose spec cannot be read to the dead-letter queue.
--- @key   repeats              zset         repeatable jobs by their next fire
--- @key   dead_letters         stream       the dead-letter queue
--- @arg   name                 bytes        its name among the repeatable jobs
--- @arg   packed               bytes        its spec, as the caller read it
--- @arg   max_dead             int          about how many dead letters are kept
--- @arg   detail               text         what is wrong with it
--- @returns int 1, or 0 when it is gone or has changed
--- @cost    O(log N)

local jobs = require("jobs")

-- Names need not be text: the spec's key is built here.
local spec_key = repeats_key .. ":spec:" .. name
if (redis.call("HGET", spec_key, "spec") or "") ~= packed or redis.call("ZREM", repeats_key, name) == 0 then
  return 0
end
redis.call("DEL", spec_key)
jobs.bury(dead_letters_key, max_dead, { envelope = packed, reason = "malformed", detail = detail })
return 1
