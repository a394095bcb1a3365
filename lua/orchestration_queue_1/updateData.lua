--- Replace the payload of an existing job; a running attempt keeps its own.
--- @key   job                  hash         the job
--- @arg   data                 text         its new payload, as the serializer wrote it
--- @returns int 1; or 0 when there is no such job
--- @cost    O(1)

if redis.call("EXISTS", job_key) == 0 then
  return 0
end
redis.call("HSET", job_key, "data", data)
return 1
