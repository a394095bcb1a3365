--- Moves a job to another queue, which may be on another server. The source holds it, as a waiting job that is never
--- notified; the target takes it, and holds it as well; the source drops it; the target places it. A change of the job at
--- the source meanwhile, such as a cancel or a new dependent, changes the digest of its contents: the source then drops it
--- only after it was copied again. Each queue decides once, the target whether it takes the job and the source whether it
--- drops it, and remembers that by the token of the move for a week: a repeated or late call neither adds the job twice
--- nor changes the decision.

local chunks = require("chunks")
local dependencies = require("dependencies")
local dependents = require("dependents")
local events = require("events")
local guarded = require("guarded")
local history = require("history")
local ids = require("ids")
local placement = require("placement")
local propagation = require("propagation")
local purge = require("purge")
local record = require("record")
local release = require("release")
local removal = require("removal")
local scheduled = require("scheduled")
local shares = require("shares")
local stream = require("stream")
local tags = require("tags")
local withdrawal = require("withdrawal")

local moving = {}

local REMEMBERED_S = 7 * 86400
local MOST_DECIDED = 100
-- What a move notes on the record, at the source and at the target.
local NOTED = { "movingTo", "movedBy", "moveToken", "moveState", "moveDue", "moveDelay", "moveReads", "movedAt" }
-- What holds in one queue only.
local LEFT_BEHIND = {
  state = true, parentId = true, parentQueue = true, parentIds = true, parentQueues = true,
  orderingSeq = true, entry = true, strayEntry = true, strayElement = true, releasedFrom = true, movedFrom = true,
  movingTo = true, movedBy = true, moveToken = true, moveState = true, moveDue = true, moveDelay = true,
  moveReads = true, movedAt = true,
}

local function decide(queue, token, decision)
  redis.call("SET", queue .. "moved:" .. token, decision, "EX", REMEMBERED_S)
  return decision
end

local take_out = {}

function take_out.waiting(queue, job_id, job, group)
  local found = job.share and shares.remove(queue, job_id, job.share)
    or withdrawal.withdraw(queue, job_id, job)
    or stream.withdraw(queue, group, job_id, job)
  return found and 0
end

function take_out.delayed(queue, job_id)
  local score = redis.call("ZSCORE", queue .. "scheduled", job_id)
  if not score then
    return nil
  end
  redis.call("ZREM", queue .. "scheduled", job_id)
  local _, due = scheduled.split(tonumber(score))
  return due
end

take_out.prioritized = take_out.delayed

function take_out.failed(queue, job_id)
  local score = redis.call("ZSCORE", queue .. "failed", job_id)
  redis.call("ZREM", queue .. "failed", job_id)
  return tonumber(score or nil) or 0
end

--- Fail a job that was cancelled on its way, and decide about those that wait for it.
local function revoke(queue, job_id, now)
  local outcomes = propagation.new(queue, now, MOST_DECIDED)
  release.revoke(queue, job_id, record.load(queue, job_id), now)
  propagation.finish(outcomes)
end

--- Give a job that is held its place.
local function place(queue, job_id, state, due, now)
  redis.call("HSET", queue .. "job:" .. job_id, "state", state)
  local job = record.load(queue, job_id)
  if state == "failed" then
    redis.call("ZADD", queue .. "failed", string.format("%.0f", due), job_id)
  elseif job.revoked then
    revoke(queue, job_id, now)
  elseif state == "waiting" then
    placement.ready(queue, job_id, job)
  else
    placement.later(queue, job_id, job, due)
  end
end

local function hold(queue, job_id, now)
  guarded.call("ZADD", queue .. "moving", string.format("%.0f", now), job_id)
  redis.call("HSET", queue .. "job:" .. job_id, "state", "waiting-children")
  guarded.call("SADD", queue .. "deps:" .. job_id, queue .. dependencies.WIRING)
end

local function let_go(queue, job_id)
  redis.call("HDEL", queue .. "job:" .. job_id, unpack(NOTED))
  guarded.call("ZREM", queue .. "moving", job_id)
end

local function list_of(key)
  return guarded.call("LRANGE", key, 0, -1)
end

--- All that the target needs: fields, log lines, signals, dependents and dependencies; and its digest.
local function content(queue, job_id)
  local key, parents, deps = queue .. "job:" .. job_id, {}, {}
  local named = redis.call("HMGET", key, "parentId", "parentQueue")
  dependents.each(queue, job_id, { parentId = named[1] or "", parentQueue = named[2] or "" }, true, function(other, id)
    parents[#parents + 1] = other .. id
  end)
  for _, member in ipairs(guarded.call("SMEMBERS", queue .. "deps:" .. job_id)) do
    if member ~= queue .. dependencies.WIRING then
      deps[#deps + 1] = member
    end
  end
  local fields, flat = {}, redis.call("HGETALL", key)
  for index = 1, #flat, 2 do
    if not LEFT_BEHIND[flat[index]] then
      fields[#fields + 1], fields[#fields + 2] = flat[index], flat[index + 1]
    end
  end
  local found = { fields, list_of(queue .. "log:" .. job_id), list_of(queue .. "signals:" .. job_id), parents, deps }
  return found, redis.sha1hex(cjson.encode(found))
end

--- What the function replies about a job that is held. Each reading has a number: the target keeps the last one.
local function carried(queue, job_id)
  local key = queue .. "job:" .. job_id
  local reads = redis.call("HINCRBY", key, "moveReads", 1)
  local noted = redis.call("HMGET", key, "moveToken", "moveState", "moveDue", "moveDelay")
  local found, digest = content(queue, job_id)
  return {
    "ok", noted[1], noted[2], noted[3], noted[4] or "", found[1], found[2], found[3], found[4], found[5], digest, reads,
  }
end

--- Return why a job can't be moved: a word, and its subject; nil if it can.
local function refusal(job, flow)
  if not take_out[job.state] then
    return { "state", job.state }
  elseif flow then
    return { "in_flow", flow }
  elseif (job.groupKey or "") ~= "" or (job.orderingKey or "") ~= "" then
    return { "ordered", job.groupKey or job.orderingKey }
  end
  return nil
end

--- Take a job out of its state, and hold it; returns the function's reply.
function moving.out(queue, job_id, now, target, token, delay, group)
  local job, key = record.load(queue, job_id), queue .. "job:" .. job_id
  if not job then
    guarded.call("ZREM", queue .. "moving", job_id)
    return { "not_found", "" }
  end
  local known = redis.call("HMGET", key, "movingTo", "flow")
  if known[1] then
    return known[1] == target and carried(queue, job_id) or { "moving", known[1] }
  end
  local refused = refusal(job, known[2])
  if refused then
    return refused
  elseif delay ~= "" and job.state == "failed" then
    return { "no_delay", job.state }
  end
  local due = take_out[job.state](queue, job_id, job, group)
  if not due then
    return { "not_found_there", job.state }
  end
  hold(queue, job_id, now)
  redis.call(
    "HSET", key, "movingTo", target, "moveToken", token, "moveState", job.state, "moveDue", string.format("%.0f", due)
  )
  if delay ~= "" then
    redis.call("HSET", key, "moveDelay", delay)
  end
  return carried(queue, job_id)
end

local function write_parents(queue, job_id, parents)
  local parent_ids, parent_queues = {}, {}
  for _, parent in ipairs(parents) do
    local name, parent_id = parent:match("{(.*)}:([^:]*)$")
    if name then
      parent_ids[#parent_ids + 1], parent_queues[#parent_queues + 1] = parent_id, name
    end
  end
  if parent_ids[1] then
    chunks.call(parents, "SADD", queue .. "parents:" .. job_id)
    redis.call(
      "HSET", queue .. "job:" .. job_id,
      "parentIds", cjson.encode(parent_ids), "parentQueues", cjson.encode(parent_queues)
    )
  end
end

--- Remove the fields that the job has lost at the source since it was carried over before.
local function forget_lost(key, fields)
  local kept = { revoked = true }
  for index = 1, #fields, 2 do
    kept[fields[index]] = true
  end
  for _, name in ipairs(redis.call("HKEYS", key)) do
    if not kept[name] and not LEFT_BEHIND[name] then
      redis.call("HDEL", key, name)
    end
  end
end

--- Write a job that is on its way. Who was registered here as waiting for it, or cancelled it here, stays known.
local function write(queue, job_id, token, source, now, job)
  local key = queue .. "job:" .. job_id
  forget_lost(key, job.fields)
  redis.call(
    "HSET", key, "movedBy", token, "movedFrom", source, "moveReads", job.reads, "movedAt", string.format("%.0f", now),
    "moveState", job.state, "moveDue", string.format("%.0f", job.due)
  )
  if job.delay ~= "" then
    redis.call("HSET", key, "moveDelay", job.delay)
  end
  redis.call("UNLINK", queue .. "log:" .. job_id, queue .. "signals:" .. job_id, queue .. "deps:" .. job_id)
  chunks.call(job.fields, "HSET", key)
  chunks.call(job.log, "RPUSH", queue .. "log:" .. job_id)
  chunks.call(job.signals, "RPUSH", queue .. "signals:" .. job_id)
  chunks.call(job.deps, "SADD", queue .. "deps:" .. job_id)
  write_parents(queue, job_id, job.parents)
  stream.disown(queue, job_id) -- of an earlier stay
  hold(queue, job_id, now)
end

--- Take the job of a move, and hold it, unless another job has its id. Returns the decision, which is made once.
function moving.into(queue, job_id, token, source, now, job)
  local noted = redis.call("HMGET", queue .. "job:" .. job_id, "movedBy", "moveReads")
  local is_held = noted[1] == token
  local decided = redis.call("GET", queue .. "moved:" .. token)
  if decided then
    if is_held and job.reads > (tonumber(noted[2]) or 0) then
      write(queue, job_id, token, source, now, job)
    end
    return decided
  elseif not is_held then
    if ids.exists(queue, job_id) then
      return decide(queue, token, "taken")
    end
    ids.take(queue, job_id)
    purge.jobs(queue, { job_id })
  end
  write(queue, job_id, token, source, now, job)
  return decide(queue, token, "ok")
end

--- The state and the due time in which the job arrives.
local function arrival(queue, job_id, now)
  local key = queue .. "job:" .. job_id
  local noted = redis.call("HMGET", key, "moveState", "moveDue", "moveDelay")
  local delay = tonumber(noted[3] or nil)
  if not delay then
    return noted[1], tonumber(noted[2]) or 0
  end
  redis.call("HSET", key, "delay", noted[3])
  if delay > 0 then
    return "delayed", now + delay
  elseif record.priority(record.load(queue, job_id)) > 0 then
    return "prioritized", 0
  end
  return "waiting", 0
end

--- Give a job that its source has dropped its place, or remove it with `kept` false; whether that was still to do.
function moving.land(queue, job_id, token, kept, now)
  local key = queue .. "job:" .. job_id
  local noted = redis.call("HMGET", key, "movedBy", "movedFrom", "tags", "tracked", "name")
  if noted[1] ~= token then
    if not noted[1] then
      guarded.call("ZREM", queue .. "moving", job_id)
    end
    return 0
  elseif not kept then
    guarded.call("ZREM", queue .. "moving", job_id)
    removal.remove(queue, job_id, "")
    return 1
  end
  tags.enter(queue, job_id, tags.read(noted[3] or nil), now)
  if noted[4] then
    guarded.call("ZADD", queue .. "tracked", tonumber(noted[4]) or now, job_id)
  end
  dependencies.release(queue, job_id)
  -- Its place before the rest: where that is damaged, the job is held until it is whole again.
  local state, due = arrival(queue, job_id, now)
  place(queue, job_id, state, due, now)
  let_go(queue, job_id)
  history.append(queue, job_id, { event = "moved", ended = now, reason = noted[2] })
  events.emit(queue, "added", job_id, "name", noted[5] or "")
  return 1
end

local function rename_field(key, from, to)
  local value = redis.call("HGET", key, from)
  if value then
    redis.call("HSET", key, to, value)
    redis.call("HDEL", key, from)
  end
end

--- Have a job wait for one under its new name.
function moving.rename(queue, job_id, from, to)
  if redis.call("SREM", queue .. "deps:" .. job_id, from) == 0 then
    return 0
  end
  redis.call("SADD", queue .. "deps:" .. job_id, to)
  for _, prefix in ipairs({ "depdone:", "depend:", "depweak:" }) do
    rename_field(queue .. "job:" .. job_id, prefix .. from, prefix .. to)
  end
  return 1
end

--- Drop a job that the target holds, or put back one that was refused there; returns the function's reply.
function moving.finish(queue, job_id, token, arrived, digest, now)
  local key = queue .. "job:" .. job_id
  local noted = redis.call("HMGET", key, "moveToken", "moveState", "moveDue", "tags")
  if noted[1] ~= token then
    -- Who removes a job leaves no decision.
    return redis.call("EXISTS", queue .. "moved:" .. token) == 1 and "over" or "removed"
  elseif not arrived then
    dependencies.release(queue, job_id)
    place(queue, job_id, noted[2], tonumber(noted[3]) or 0, now)
    let_go(queue, job_id)
    return decide(queue, token, "put_back")
  end
  local _, current = content(queue, job_id)
  if current ~= digest then
    return "changed"
  end
  guarded.call("ZREM", queue .. "tracked", job_id)
  tags.leave(queue, job_id, tags.read(noted[4] or nil))
  purge.jobs(queue, { job_id })
  guarded.call("ZREM", queue .. "moving", job_id)
  events.emit(queue, "removed", job_id)
  return decide(queue, token, "dropped")
end

return moving
