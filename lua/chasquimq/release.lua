--- Stop leading.
--- @key   lock                 string       names the leader
--- @arg   holder               text         the caller
--- @returns int 1, or 0 when another leads
--- @cost    O(1)

if redis.call("GET", lock_key) ~= holder then
  return 0
end
return redis.call("DEL", lock_key)
