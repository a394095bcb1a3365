--- Take a lock unless another owner holds it.
--- @key   lock                 string       the lock
--- @arg   token                text         names this holder
--- @arg   ttl_ms               int =1000    the lock falls free after this
--- @returns int 1 when taken, else 0
--- @cost    O(1)

return redis.call("SET", lock_key, token, "PX", ttl_ms, "NX") and 1 or 0
