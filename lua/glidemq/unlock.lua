--- Release a lock, if it is still ours.
--- @key   lock                 string       the lock
--- @arg   token                text         names this holder
--- @returns int 1 when given back, else 0
--- @cost    O(1)

if redis.call("GET", lock_key) ~= token then
  return 0
end
return redis.call("DEL", lock_key)
