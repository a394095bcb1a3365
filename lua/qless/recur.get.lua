--- Return a recurring job.
--- @arg     jid text its id
--- @returns JSON, or nil when it does not exist
--- @cost    O(1)

local NUMBERS = { "priority", "interval", "retries", "count", "backlog" }
local names = { "jid", "klass", "state", "queue", "data", "tags", unpack(NUMBERS) }
local values = redis.call("HMGET", "ql:r:" .. jid, unpack(names))
if not values[1] then
  return nil
end
local job = {}
for index, name in ipairs(names) do
  job[name] = values[index]
end
for _, name in ipairs(NUMBERS) do
  job[name] = tonumber(job[name]) or 0
end
job.tags = cjson.decode(job.tags)
return cjson.encode(job)
