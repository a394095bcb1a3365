--- Finds jobs by their name.

local stream = require("stream")

local search = {}

local PAGE = 1000

local function walk_set(key, visit)
  local first = 0
  while true do
    local page = redis.call("ZRANGE", key, first, first + PAGE - 1)
    for _, job_id in ipairs(page) do
      if visit(job_id) then
        return
      end
    end
    if #page < PAGE then
      return
    end
    first = first + PAGE
  end
end

--- Ids of up to `limit` jobs with exactly this name, in the order of the `zset` or `stream` at `key`.
function search.by_name(queue, key, state_type, name, limit)
  local found = {}
  local function visit(job_id)
    if #found < limit and job_id and redis.call("HGET", queue .. "job:" .. job_id, "name") == name then
      found[#found + 1] = job_id
    end
    return #found >= limit
  end
  if state_type == "stream" then
    stream.walk(key, function(_, fields)
      return visit(stream.field(fields, "jobId"))
    end)
  else
    walk_set(key, visit)
  end
  return found
end

return search
