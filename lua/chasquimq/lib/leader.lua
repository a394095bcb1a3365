--- Leader election as ChasquiMQ does it: a key with a time to live that names its holder.

local leader = {}

--- Take or renew the lock. False when another holds it.
function leader.hold(lock_key, holder, ttl_s)
  local current = redis.call("GET", lock_key)
  if current and current ~= holder then
    return false
  end
  redis.call("SET", lock_key, holder, "EX", ttl_s)
  return true
end

return leader
