--- List the repeatable jobs that are due, if the caller leads.
--- @key   repeats              zset         repeatable jobs by their next fire
--- @key   lock                 string       names the leader
--- @arg   holder               text         the caller
--- @arg   ttl_s                int          how long the caller leads from now on
--- @arg   now_ms               int          epoch ms
--- @arg   most                 int          at most this many
--- @returns list 0 or 1 for leading, the next fire in epoch ms or -1, then per due job its name, fire and packed spec
--- @cost    O(most + log N)

local leader = require("leader")

if not leader.hold(lock_key, holder, ttl_s) then
  return { 0, "-1" }
end
local first = redis.call("ZRANGE", repeats_key, 0, 0, "WITHSCORES")
local reply = { 1, first[2] or "-1" }
local due = redis.call("ZRANGEBYSCORE", repeats_key, "-inf", now_ms, "WITHSCORES", "LIMIT", 0, most)
for index = 1, #due, 2 do
  -- A key of another type has no spec either, and must not stop the others.
  local packed = redis.pcall("HGET", repeats_key .. ":spec:" .. due[index], "spec")
  if type(packed) == "string" then
    reply[#reply + 1] = { due[index], due[index + 1], packed }
  else
    redis.call("ZREM", repeats_key, due[index])
  end
end
return reply
