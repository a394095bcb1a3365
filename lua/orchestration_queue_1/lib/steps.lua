--- The durable steps of a job: in the hash `steps:{id}`, per step `h:{name}`, how it ended, and `r:{name}`, its result.
--- The record's field `steps` numbers them, so that an attempt of a job without steps need not ask for any.

local guarded = require("guarded")
local numbers = require("numbers")
local rules = require("rules")

local steps = {}

steps.MOST = 10000

--- Kinds that another one replaces: the step waits for a signal, or for a called job.
local PENDING = { w = true, c = true }

function steps.key(queue, job_id)
  return queue .. "steps:" .. job_id
end

--- Prepare the hash of a job's steps; returns its key.
local function open(queue, job_id, is_first)
  local key = steps.key(queue, job_id)
  if is_first then
    redis.call("UNLINK", key) -- of a removed job of this id, left by a library that doesn't know the key
  end
  return key
end

--- Write a step with its number, or with the next one; returns what counts, or why nothing was written.
local function write(queue, job_id, key, step, number, is_known)
  if not number then
    if not is_known and redis.call("HLEN", key) >= 2 * steps.MOST then
      return "full"
    end
    number = numbers.text(numbers.count(queue .. "job:" .. job_id, "steps", 1))
  end
  local header = table.concat({
    step.kind, number, numbers.text(step.attempt), numbers.text(step.ended_ms), numbers.text(step.duration_ms),
    numbers.text(step.until_ms), #step.result,
  }, " ")
  redis.call("HSET", key, "h:" .. step.name, header, "r:" .. step.name, step.result)
  return { header }
end

--- Store how a step ended. The first outcome is final, except that a wait has not ended yet.
--- @return the header that counts, with the result if it was stored before; or why nothing was stored
function steps.store(queue, job_id, is_first, step)
  local key = open(queue, job_id, is_first)
  local known = guarded.call("HGET", key, "h:" .. step.name)
  if known and not PENDING[known:sub(1, 1)] then
    return { known, redis.call("HGET", key, "r:" .. step.name) }
  end
  return write(queue, job_id, key, step, known and known:match("^%a (%d+)"))
end

--- Store that a step waits for a called job, named by its result. The first one that it names counts, unless that is the
--- one to replace, by its number.
local function store_call(queue, job_id, key, step, replaces)
  local known = guarded.call("HGET", key, "h:" .. step.name)
  if known and not (known:sub(1, 1) == "c" and tonumber(known:match("^%a (%d+)")) == replaces) then
    return { known, redis.call("HGET", key, "r:" .. step.name) }
  end
  return write(queue, job_id, key, step, nil, known)
end

--- Whether calls have more new names than there is room for.
local function lacks_room(key, calls)
  local headers, added = {}, 0
  for index, step in ipairs(calls) do
    headers[index] = "h:" .. step.name
  end
  for _, known in ipairs(guarded.call("HMGET", key, unpack(headers))) do
    added = added + (known and 0 or 1)
  end
  return added > 0 and redis.call("HLEN", key) / 2 + added > steps.MOST
end

--- Store calls, and make the job wait for the end of those that have not ended, however that is. The flow reconciler reads
--- at `check_ms` whether a notification was lost.
--- @return for each what `store` returns; or why none was stored
function steps.call(queue, job_id, is_first, calls, check_ms)
  local key, replies = open(queue, job_id, is_first), {}
  if lacks_room(key, calls) then
    return "full"
  end
  for index, step in ipairs(calls) do
    local reply = store_call(queue, job_id, key, step, step.replaces)
    replies[index] = reply
    if reply[1]:sub(1, 1) == "c" then
      guarded.call("SADD", queue .. "deps:" .. job_id, reply[2] or step.result)
    end
  end
  redis.call("HSET", queue .. "job:" .. job_id, "triggerRule", rules.CHILDREN_ENDED)
  guarded.call("ZADD", queue .. "flows:due", string.format("%.0f", check_ms), "call:" .. job_id)
  return replies
end

--- Remove a job's signals of some names, from the list and from the record.
local function forget_signals(queue, job_id, names)
  local key, left = queue .. "signals:" .. job_id, {}
  for _, signal in ipairs(guarded.call("LRANGE", key, 0, -1)) do
    local readable, found = pcall(cjson.decode, signal)
    if readable and type(found) == "table" and names[found.name] then
      redis.call("LREM", key, 1, signal)
    else
      left[#left + 1] = signal
    end
  end
  redis.call("HSET", queue .. "job:" .. job_id, "signals", "[" .. table.concat(left, ",") .. "]")
end

--- Remove steps, and the signals that they have received; returns how many there were.
function steps.forget(queue, job_id, names)
  local key, fields, headers, signaled = steps.key(queue, job_id), {}, {}, {}
  for index, name in ipairs(names) do
    headers[index] = "h:" .. name
    fields[2 * index - 1], fields[2 * index] = "h:" .. name, "r:" .. name
  end
  for index, header in ipairs(guarded.call("HMGET", key, unpack(headers))) do
    if header and header:sub(1, 1) == "g" then
      signaled[names[index]] = true
    end
  end
  if next(signaled) then
    forget_signals(queue, job_id, signaled)
  end
  return redis.call("HDEL", key, unpack(fields)) / 2
end

return steps
