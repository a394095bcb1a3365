--- Renew a lock, if it is still ours.
--- @key   lock                 string       the lock
--- @arg   token                text         names this holder
--- @arg   ttl_ms               int =1000    from now on
--- @returns int 1 when renewed, else 0
--- @cost    O(1)

if redis.call("GET", lock_key) ~= token then
  return 0
end
return redis.call("PEXPIRE", lock_key, ttl_ms)
