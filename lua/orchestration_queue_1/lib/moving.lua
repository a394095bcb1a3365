--- Moves a job to another queue, which may be on another server: the source holds it, as one that waits and is never told
--- of anything, until the target has it. The target decides once whether it takes the job, and remembers that by the
--- token of the move for a week: a call that is repeated, or late, neither adds it twice nor changes its fate.

local chunks = require("chunks")
local dependencies = require("dependencies")
local dependents = require("dependents")
local events = require("events")
local guarded = require("guarded")
local history = require("history")
local ids = require("ids")
local placement = require("placement")
local purge = require("purge")
local record = require("record")
local scheduled = require("scheduled")
local shares = require("shares")
local stream = require("stream")
local tags = require("tags")
local withdrawal = require("withdrawal")

local moving = {}

local REMEMBERED_S = 7 * 86400
-- What a move notes on the record at the source, and what holds in one queue only.
local NOTED = { "movingTo", "moveToken", "moveState", "moveDue", "moveDelay" }
local LEFT_BEHIND = {
  state = true, parentId = true, parentQueue = true, parentIds = true, parentQueues = true,
  orderingSeq = true, strayEntry = true,
  movingTo = true, movedBy = true, moveToken = true, moveState = true, moveDue = true, moveDelay = true,
}

local take_out = {}

function take_out.waiting(queue, job_id, job, group)
  local found = job.share and shares.remove(queue, job_id, job.share)
    or withdrawal.remove(queue, job_id, job)
    or stream.withdraw(queue, group, job_id, true)
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
  stream.remove_stray(queue, job_id)
  return tonumber(score or nil) or 0
end

--- Give a job that is in no structure its place.
local function place(queue, job_id, state, due)
  redis.call("HSET", queue .. "job:" .. job_id, "state", state)
  local job = record.load(queue, job_id)
  if state == "failed" then
    redis.call("ZADD", queue .. "failed", string.format("%.0f", due), job_id)
  elseif state == "waiting" then
    placement.ready(queue, job_id, job)
  else
    placement.later(queue, job_id, job, due)
  end
end

local function list_of(key)
  return guarded.call("LRANGE", key, 0, -1)
end

--- All that the target needs: fields, log lines, signals, dependents and dependencies.
local function content(queue, job_id, token)
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
  local noted = redis.call("HMGET", key, "moveState", "moveDue", "moveDelay")
  local log, signals = list_of(queue .. "log:" .. job_id), list_of(queue .. "signals:" .. job_id)
  return { "ok", token, noted[1], noted[2], noted[3] or "", fields, log, signals, parents, deps }
end

--- Why a job cannot be moved: a word, and what it is about; nil when it can.
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

--- Take a job out of its state, and hold it; returns what the function replies.
function moving.out(queue, job_id, now, target, token, delay, group)
  local job, key = record.load(queue, job_id), queue .. "job:" .. job_id
  if not job then
    guarded.call("ZREM", queue .. "moving", job_id)
    return { "not_found", "" }
  end
  local known = redis.call("HMGET", key, "movingTo", "moveToken", "flow")
  if known[1] then
    return known[1] == target and content(queue, job_id, known[2]) or { "moving", known[1] }
  end
  local refused = refusal(job, known[3])
  if refused then
    return refused
  elseif delay ~= "" and job.state == "failed" then
    return { "no_delay", job.state }
  end
  local due = take_out[job.state](queue, job_id, job, group)
  if not due then
    return { "not_found_there", job.state }
  end
  guarded.call("ZADD", queue .. "moving", string.format("%.0f", now), job_id)
  redis.call(
    "HSET", key, "state", "waiting-children", "movingTo", target, "moveToken", token, "moveState", job.state,
    "moveDue", string.format("%.0f", due)
  )
  if delay ~= "" then
    redis.call("HSET", key, "moveDelay", delay)
  end
  guarded.call("SADD", queue .. "deps:" .. job_id, queue .. dependencies.WIRING)
  return content(queue, job_id, token)
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

--- The state and the due time in which the job arrives.
local function arrival(queue, job_id, job, now)
  if job.delay == "" then
    return job.state, job.due
  end
  local delay = tonumber(job.delay)
  local key = queue .. "job:" .. job_id
  redis.call("HSET", key, "delay", job.delay)
  if delay > 0 then
    return "delayed", now + delay
  elseif record.priority(record.load(queue, job_id)) > 0 then
    return "prioritized", 0
  end
  return "waiting", 0
end

local function decide(queue, token, decision)
  redis.call("SET", queue .. "moved:" .. token, decision, "EX", REMEMBERED_S)
  return decision
end

--- Create the job of a move, unless another has its id: once, whatever is asked again. Returns the decision, which is
--- noted when the job has its place: until then, as where a key over here is damaged, the source keeps the job, and what
--- is there of it is written again.
function moving.into(queue, job_id, token, source, now, job)
  local decided = redis.call("GET", queue .. "moved:" .. token)
  if decided then
    return decided
  end
  local key = queue .. "job:" .. job_id
  if ids.exists(queue, job_id) and redis.call("HGET", key, "movedBy") ~= token then
    return decide(queue, token, "taken")
  end
  ids.take(queue, job_id)
  purge.jobs(queue, { job_id })
  redis.call("HSET", key, "movedBy", token)
  chunks.call(job.fields, "HSET", key)
  chunks.call(job.log, "RPUSH", queue .. "log:" .. job_id)
  chunks.call(job.signals, "RPUSH", queue .. "signals:" .. job_id)
  chunks.call(job.deps, "SADD", queue .. "deps:" .. job_id)
  write_parents(queue, job_id, job.parents)
  redis.call("HSET", key, "movedFrom", source)
  history.append(queue, job_id, { event = "moved", ended = now, reason = source })
  tags.enter(queue, job_id, tags.read(redis.call("HGET", key, "tags") or nil), now)
  local tracked = redis.call("HGET", key, "tracked")
  if tracked then
    guarded.call("ZADD", queue .. "tracked", tonumber(tracked) or now, job_id)
  end
  place(queue, job_id, arrival(queue, job_id, job, now))
  decide(queue, token, "ok")
  events.emit(queue, "added", job_id, "name", redis.call("HGET", key, "name") or "")
  return "ok"
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

--- Drop a job that has arrived elsewhere, or put back one that was refused; whether the move was still under way.
function moving.finish(queue, job_id, token, arrived)
  local key = queue .. "job:" .. job_id
  local noted = redis.call("HMGET", key, "moveToken", "moveState", "moveDue", "tags")
  if noted[1] ~= token then
    return 0
  end
  if arrived then
    guarded.call("ZREM", queue .. "tracked", job_id)
    tags.leave(queue, job_id, tags.read(noted[4] or nil))
    purge.jobs(queue, { job_id })
    guarded.call("ZREM", queue .. "moving", job_id)
    events.emit(queue, "removed", job_id)
    return 1
  end
  -- Its place first: where that is damaged, the move goes on until it is whole again.
  place(queue, job_id, noted[2], tonumber(noted[3]) or 0)
  redis.call("HDEL", key, unpack(NOTED))
  dependencies.release(queue, job_id)
  guarded.call("ZREM", queue .. "moving", job_id)
  return 1
end

return moving
