--- Finished sequence numbers of jobs made by libraries older than 93, which carry an `orderingKey`.

local ordering = {}

--- Note that a sequence number of a key has finished, and move the contiguous mark as far as it goes.
function ordering.done(queue, key, sequence)
  local seq = key and key ~= "" and tonumber(sequence) or 0
  if seq <= 0 then
    return
  end
  local mark = "orderdone:" .. key
  local pending = queue .. "orderdone:pending:" .. key
  local last = tonumber(redis.call("HGET", queue .. "meta", mark)) or 0
  if seq <= last then
    redis.call("HDEL", pending, seq)
    return
  end
  redis.call("HSET", pending, seq, 1)
  local reached = last
  while redis.call("HDEL", pending, reached + 1) == 1 do
    reached = reached + 1
  end
  if reached > last then
    redis.call("HSET", queue .. "meta", mark, reached)
  end
end

return ordering
