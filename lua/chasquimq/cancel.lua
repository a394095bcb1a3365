--- Remove a delayed job.
--- @key   delayed              zset         jobs that wait for their time
--- @key   index                string       the job's member of `delayed`
--- @key   marker               string       marks the job's id as taken
--- @returns int 1, or 0 when it does not wait, or was added without an id
--- @cost    O(log N)

local member = redis.call("GET", index_key)
if not member or redis.call("ZREM", delayed_key, member) == 0 then
  return 0
end
redis.call("DEL", index_key, marker_key)
return 1
