--- The durable steps of a job: in the hash `steps:{id}`, per step `h:{name}`, how it ended, and `r:{name}`, its result.
--- The record's field `steps` numbers them, so that an attempt of a job without steps need not ask for any.

local guarded = require("guarded")
local numbers = require("numbers")

local steps = {}

steps.MOST = 10000
local PENDING = "w"

function steps.key(queue, job_id)
  return queue .. "steps:" .. job_id
end

--- Store how a step ended. The first outcome is final, except that a wait has not ended yet.
--- @return the header that counts, with the result if it was stored before; or why nothing was stored
function steps.store(queue, job_id, is_first, step)
  local key = steps.key(queue, job_id)
  if is_first then
    redis.call("UNLINK", key) -- of a removed job of this id, left by a library that doesn't know the key
  end
  local known = guarded.call("HGET", key, "h:" .. step.name)
  if known and known:sub(1, 1) ~= PENDING then
    return { known, redis.call("HGET", key, "r:" .. step.name) }
  elseif not known and redis.call("HLEN", key) >= 2 * steps.MOST then
    return "full"
  end
  local number = known and known:match("^%a (%d+)")
    or numbers.text(numbers.count(queue .. "job:" .. job_id, "steps", 1))
  local header = table.concat({
    step.kind, number, numbers.text(step.attempt), numbers.text(step.ended_ms), numbers.text(step.duration_ms),
    numbers.text(step.until_ms), #step.result,
  }, " ")
  redis.call("HSET", key, "h:" .. step.name, header, "r:" .. step.name, step.result)
  return { header }
end

--- Remove steps; returns how many there were.
function steps.forget(queue, job_id, names)
  local fields = {}
  for _, name in ipairs(names) do
    fields[#fields + 1], fields[#fields + 2] = "h:" .. name, "r:" .. name
  end
  return redis.call("HDEL", steps.key(queue, job_id), unpack(fields)) / 2
end

return steps
