--- Changes a job's dependencies within its queue.

local dependencies = require("dependencies")
local dependents = require("dependents")
local holding = require("holding")
local propagation = require("propagation")

local edges = {}

local MOST_READ = 1000
local ROOM = 100

--- Whether a job waits for another, itself or through others; nil when that takes too many reads.
local function reaches(queue, from, wanted, seen)
  local todo = { from }
  while todo[1] do
    local job_id = table.remove(todo)
    if job_id == wanted then
      return true
    elseif not seen[job_id] then
      seen[job_id] = true
      seen.count = seen.count + redis.call("SCARD", queue .. "deps:" .. job_id)
      if seen.count > MOST_READ then
        return nil
      end
      for _, member in ipairs(redis.call("SMEMBERS", queue .. "deps:" .. job_id)) do
        local other_queue, other_id = dependents.read_member(queue, member)
        if other_queue == queue then
          todo[#todo + 1] = other_id
        end
      end
    end
  end
  return false
end

--- Why the job cannot wait for these; nil when it can.
local function refusal(queue, job_id, on)
  local seen = { count = 0 }
  for _, other in ipairs(on) do
    if redis.call("EXISTS", queue .. "job:" .. other.job_id) == 0 then
      return { "missing", other.job_id, {}, {} }
    end
    local found = reaches(queue, other.job_id, job_id, seen)
    if found ~= false then
      return { found and "circle" or "too_deep", other.job_id, {}, {} }
    end
  end
  return nil
end

local function wait_for(queue, job_id, other_id)
  if redis.call("SADD", queue .. "deps:" .. job_id, queue .. other_id) == 0 then
    return
  end
  local names = redis.call("HMGET", queue .. "job:" .. other_id, "parentId", "parentQueue")
  if names[1] ~= job_id or names[2] ~= dependents.queue_name(queue) then
    redis.call("SADD", queue .. "parents:" .. other_id, queue .. job_id)
  end
end

local function wait_no_more(queue, job_id, other_id)
  local key, other, member = queue .. "job:" .. job_id, queue .. "job:" .. other_id, queue .. other_id
  if redis.call("SREM", queue .. "deps:" .. job_id, member) == 0 then
    return
  end
  dependencies.await(queue, job_id, member)
  if redis.call("HDEL", key, dependencies.weak_field(member)) == 1 then
    redis.call("HINCRBY", key, "depsOptional", -1)
  end
  redis.call("SREM", queue .. "parents:" .. other_id, queue .. job_id)
  local names = redis.call("HMGET", other, "parentId", "parentQueue")
  if names[1] == job_id and names[2] == dependents.queue_name(queue) then
    redis.call("HDEL", other, "parentId", "parentQueue")
  end
end

--- Apply the change; returns the function's reply.
function edges.change(queue, job_id, on, off, now)
  local fields = redis.call("HMGET", queue .. "job:" .. job_id, "state", "processedOn", "moveState")
  if not fields[1] then
    return { "not_found", "", {}, {} }
  elseif fields[1] ~= "waiting-children" or fields[2] or fields[3] then
    return { "not_waiting", "", {}, {} }
  end
  local refused = refusal(queue, job_id, on)
  if refused then
    return refused
  end
  local outcomes = propagation.new(queue, now, ROOM, true)
  for _, other in ipairs(on) do
    wait_for(queue, job_id, other.job_id)
  end
  for _, other in ipairs(off) do
    wait_no_more(queue, job_id, other.job_id)
  end
  for _, other in ipairs(on) do
    propagation.ended(outcomes, other.job_id)
  end
  propagation.run(outcomes)
  if redis.call("HGET", queue .. "job:" .. job_id, "state") == "waiting-children" then
    dependencies.drop_bare_rule(queue, job_id)
    holding.go_on(outcomes, job_id)
  end
  local _, elsewhere, remaining = unpack(propagation.finish(outcomes))
  return { "ok", "", elsewhere, remaining }
end

return edges
