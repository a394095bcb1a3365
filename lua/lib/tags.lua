--- Jobs by tag. A job's record holds its tags; beside it there is an index, in which a job that is removed stays at first,
--- so that jobs without tags cost nothing. Each change of a tag and each reclaim checks some ids and drops the dead ones.

local guarded = require("guarded")

local tags = { MOST = 20 }

local MOST_BYTES = 400
local SAMPLE = 2
local MOST_CHECKED = 500

local function valid(names)
  local found = {}
  for _, name in ipairs(type(names) == "table" and names or {}) do
    if type(name) == "string" and name ~= "" and #name <= MOST_BYTES and #found < tags.MOST then
      found[#found + 1] = name
    end
  end
  return found
end

--- The tags in the field of a record; none when another client damaged it.
function tags.read(stored)
  local readable, names = pcall(cjson.decode, stored or "[]")
  return valid(readable and names)
end

--- The tags that the options of a new job name; nil without any.
function tags.of_options(opts)
  if opts == "{}" or not opts:find('"tags"', 1, true) then
    return nil
  end
  local readable, decoded = pcall(cjson.decode, opts)
  local names = valid(readable and type(decoded) == "table" and decoded.tags)
  return names[1] and names
end

local function has(queue, job_id, name)
  local stored = redis.pcall("HGET", queue .. "job:" .. job_id, "tags")
  for _, each in ipairs(type(stored) == "string" and tags.read(stored) or {}) do
    if each == name then
      return true
    end
  end
  return false
end

local function count(queue, name)
  local jobs = guarded.call("ZCARD", queue .. "tag:" .. name)
  if jobs > 0 then
    guarded.call("ZADD", queue .. "tags", jobs, name)
  else
    guarded.call("ZREM", queue .. "tags", name)
  end
end

--- Check up to `most` jobs of a tag, chosen at random, and drop those that are gone or have it no more.
local function sweep(queue, name, most)
  for _, job_id in ipairs(guarded.call("ZRANDMEMBER", queue .. "tag:" .. name, most)) do
    if not has(queue, job_id, name) then
      redis.call("ZREM", queue .. "tag:" .. name, job_id)
    end
  end
  count(queue, name)
end

--- Enter a job under tags, which its record holds already. Checking two for one that comes in bounds the dead ones.
function tags.enter(queue, job_id, names, now)
  for _, name in ipairs(names) do
    guarded.call("ZADD", queue .. "tag:" .. name, string.format("%.0f", now), job_id)
    sweep(queue, name, SAMPLE)
  end
end

--- Take a job out from under tags.
function tags.leave(queue, job_id, names)
  for _, name in ipairs(names) do
    guarded.call("ZREM", queue .. "tag:" .. name, job_id)
    count(queue, name)
  end
end

--- Check jobs of one tag, chosen at random.
function tags.sweep_any(queue)
  local name = guarded.call("ZRANDMEMBER", queue .. "tags")
  if name then
    sweep(queue, name, MOST_CHECKED)
  end
end

--- Up to `limit` jobs of a tag from the one at `offset` on, oldest first, and whether there may be more. Dead ids that it
--- meets are dropped.
function tags.page(queue, name, offset, limit)
  local key, found, checked = queue .. "tag:" .. name, {}, 0
  local ended = false
  while #found < limit and checked < MOST_CHECKED and not ended do
    local first = offset + #found
    local job_ids = guarded.call("ZRANGE", key, first, first + math.min(limit - #found, MOST_CHECKED) - 1)
    for _, job_id in ipairs(job_ids) do
      if has(queue, job_id, name) then
        found[#found + 1] = job_id
      else
        redis.call("ZREM", key, job_id)
      end
    end
    checked, ended = checked + #job_ids, not job_ids[1]
  end
  count(queue, name)
  return found, not ended
end

return tags
