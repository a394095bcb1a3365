#!lua name=glidemq
-- Generated from lua/glidemq/ and lua/lib/; do not edit. Regenerate with: python tools/bundle_lua.py

local modules = {}

local function require(name)
  return modules[name]
end

local REVISION = "13"

local _cjson_decode, _cjson_encode, _error, _ipairs, _math_ceil, _math_floor, _math_max, _math_min, _pairs, _pcall, _redis_call, _redis_pcall, _select, _string_format, _table_concat, _tonumber, _tostring, _type, _unpack

local function look_up()
  _cjson_decode, _cjson_encode, _error, _ipairs, _math_ceil, _math_floor, _math_max, _math_min, _pairs, _pcall, _redis_call, _redis_pcall, _select, _string_format, _table_concat, _tonumber, _tostring, _type, _unpack = cjson.decode, cjson.encode, error, ipairs, math.ceil, math.floor, math.max, math.min, pairs, pcall, redis.call, redis.pcall, select, string.format, table.concat, tonumber, tostring, type, unpack
end

--- Refuse a call whose key or argument is absent or no number, before anything is written.
local function missing(fname, word)
  _error("ERR glidemq_" .. fname .. ": '" .. word .. "' is missing or malformed", 0)
end

--- A number; nil when the word is not one or is absent. Lua would take `nan` and `inf` for numbers.
local function numeric(word)
  local number = _tonumber(word)
  return number and number - number == 0 and number or nil
end

--- What every key of the queue begins with, from a key whose own name comes last.
local function queue_of(fname, key, name)
  if key:sub(-#name) ~= name then
    _error("ERR glidemq_" .. fname .. ": the key '" .. key .. "' must end in '" .. name .. "'", 0)
  end
  return key:sub(1, -#name - 1)
end

modules.guarded = (function()
--- Commands on keys that must stop no call when another client gave them another type.

local guarded = {}

local KEPT_S = 7 * 86400

--- Keep the damaged key under another name for some days, for inspection.
local function set_aside(key)
  local kept = key:gsub("}:", "}:damaged:", 1)
  redis.log(redis.LOG_WARNING, key .. " is of another type than expected; it is " .. kept .. " now")
  _redis_call("UNLINK", kept)
  _redis_call("RENAME", key, kept)
  _redis_call("EXPIRE", kept, KEPT_S)
end

--- As `redis.call`, on a key of this queue. A key of another type is set aside first.
function guarded.call(command, key, ...)
  local reply = _redis_pcall(command, key, ...)
  if _type(reply) ~= "table" or not reply.err then
    return reply
  elseif not reply.err:find("WRONGTYPE", 1, true) then
    _error(reply)
  end
  set_aside(key)
  return _redis_call(command, key, ...)
end

return guarded
end)()

modules.chunks = (function()
--- Commands with more words than the stack of a script holds, sent in pieces.

local guarded = require("guarded")

local chunks = {}

local WORDS = 1000

--- Whether any of the keys exists.
function chunks.any_exist(keys)
  for first = 1, #keys, WORDS do
    if _redis_call("EXISTS", _unpack(keys, first, _math_min(first + WORDS - 1, #keys))) > 0 then
      return true
    end
  end
  return false
end

local function send(issue, words, command, key, further)
  for first = 1, #words, WORDS do
    local last = _math_min(first + WORDS - 1, #words)
    if further then
      issue(command, key, further, _unpack(words, first, last))
    else
      issue(command, key, _unpack(words, first, last))
    end
  end
end

--- Send a command on a key with the words of a list last, behind a `further` one that may be left out.
function chunks.call(words, command, key, further)
  send(_redis_call, words, command, key, further)
end

--- The same about a key that must stop no call.
function chunks.guarded_call(words, command, key, further)
  send(guarded.call, words, command, key, further)
end

return chunks
end)()

modules.ids = (function()
--- Job ids: the caller's own, or the next of the queue's counter.

local chunks = require("chunks")

local ids = {}

local MOST_COLLISIONS = 1000
-- Above this a double, and so this library, cannot tell neighbors apart.
local LARGEST = 2 ^ 53 - 1

function ids.exists(queue, job_id)
  return _redis_call("EXISTS", queue .. "job:" .. job_id) == 1
end

--- Keep automatic ids clear of a caller's numeric one.
local function advance(queue, custom_id)
  local number = custom_id:match("^%d+$") and _tonumber(custom_id)
  if number and number > 0 and number <= LARGEST then
    if number > (_tonumber(_redis_call("GET", queue .. "id")) or 0) then
      _redis_call("SET", queue .. "id", _string_format("%.0f", number))
    end
  end
end

--- Take an id for a new job: `custom_id`, which must be free, or an automatic one that is neither in use nor in
--- `reserved`, a set of job keys. nil when a thousand in a row are.
function ids.take(queue, custom_id, reserved)
  if custom_id ~= "" then
    advance(queue, custom_id)
    return custom_id
  end
  for _ = 0, MOST_COLLISIONS do
    local job_id = _string_format("%d", _redis_call("INCR", queue .. "id"))
    if not ids.exists(queue, job_id) and not (reserved and reserved[queue .. "job:" .. job_id]) then
      return job_id
    end
  end
  return nil
end

--- Take automatic ids for `count` new jobs at once; fewer when some of the next ones are in use.
function ids.take_many(queue, count)
  local last = _redis_call("INCRBY", queue .. "id", count)
  local taken, keys, free = {}, {}, {}
  for index = 1, count do
    taken[index] = _string_format("%d", last - count + index)
    keys[index] = queue .. "job:" .. taken[index]
  end
  if not chunks.any_exist(keys) then
    return taken
  end
  for _, job_id in _ipairs(taken) do
    if not ids.exists(queue, job_id) then
      free[#free + 1] = job_id
    end
  end
  return free
end

return ids
end)()

modules.tokens = (function()
--- Arithmetic of the token bucket. Pure: no command is issued here.
--- Tokens count in thousandths; the remainder carries what a refill rounded off, in thousandths of those.

local tokens = {}

tokens.DEFAULT_COST = 1000

--- Refill a bucket. `bucket` has capacity, refill_rate, and perhaps tokens, last_refill and remainder.
--- @return tokens, last refill, remainder
function tokens.refill(bucket, now)
  local capacity, rate = bucket.capacity, bucket.refill_rate
  local level = bucket.tokens or capacity
  -- A full bucket gains nothing, and the idle time is not saved up for the next deduction.
  if level >= capacity then
    return capacity, now, 0
  end
  local last = bucket.last_refill or now
  local elapsed = now - last
  if elapsed <= 0 or rate <= 0 then
    return level, last, bucket.remainder or 0
  end
  local enough = _math_ceil(capacity * 1000 / rate)
  local raw = _math_min(elapsed, enough) * rate + (bucket.remainder or 0)
  return _math_min(capacity, level + _math_floor(raw / 1000)), now, raw % 1000
end

--- How long until `cost` is there.
function tokens.wait_ms(cost, level, refill_rate)
  return _math_ceil((cost - level) * 1000 / _math_max(refill_rate, 1))
end

return tokens
end)()

modules.groups = (function()
--- State of one group: its limits, its slots, its sequence, and the jobs parked until admission.

local guarded = require("guarded")
local tokens = require("tokens")

local groups = {}

local FIELDS = {
  "maxConcurrency", "active", "nextSeq",
  "rateMax", "rateDuration", "rateWindowStart", "rateCount",
  "tbCapacity", "tbRefillRate", "tbTokens", "tbLastRefill", "tbRefillRemainder", "heldUntil",
}
local MOST_SKIPS = 10000

local function hash(queue, name)
  return queue .. "group:" .. name
end

function groups.parked_key(queue, name)
  return queue .. "groupq:" .. name
end

--- The group's numbers.
function groups.load(queue, name)
  local values = guarded.call("HMGET", hash(queue, name), _unpack(FIELDS))
  return {
    max_concurrency = values[1] and _tonumber(values[1]) or 0,
    active = values[2] and _tonumber(values[2]) or 0,
    next_seq = values[3] and _tonumber(values[3]) or 0,
    rate_max = values[4] and _tonumber(values[4]) or 0,
    rate_duration = values[5] and _tonumber(values[5]) or 0,
    window_start = values[6] and _tonumber(values[6]) or 0,
    rate_count = values[7] and _tonumber(values[7]) or 0,
    capacity = values[8] and _tonumber(values[8]) or 0,
    refill_rate = values[9] and _tonumber(values[9]) or 0,
    tokens = values[10] and _tonumber(values[10]) or nil,
    last_refill = values[11] and _tonumber(values[11]) or nil,
    remainder = values[12] and _tonumber(values[12]) or nil,
    held_until = values[13] and _tonumber(values[13]) or 0,
  }
end

function groups.write(queue, name, ...)
  _redis_call("HSET", hash(queue, name), ...)
end

function groups.write_absent(queue, name, field, value)
  _redis_call("HSETNX", hash(queue, name), field, value)
end

function groups.forget(queue, name, ...)
  _redis_call("HDEL", hash(queue, name), ...)
end

--- Refill the bucket and remember it; returns the tokens there.
function groups.refill(queue, name, group, now)
  local level, last, remainder = tokens.refill(group, now)
  if level ~= group.tokens or last ~= group.last_refill or remainder ~= group.remainder then
    groups.write(queue, name, "tbTokens", level, "tbLastRefill", last, "tbRefillRemainder", remainder)
    group.tokens, group.last_refill, group.remainder = level, last, remainder
  end
  return level
end

--- Return whether the group's rate window is running, and what is left in it; nil without one.
function groups.window_room(group, now)
  if group.rate_max > 0 and group.rate_duration > 0 and now - group.window_start < group.rate_duration then
    return _math_max(group.rate_max - group.rate_count, 0)
  end
  return nil
end

--- Say that a sequence number will never activate.
function groups.skip(queue, name, seq)
  groups.write(queue, name, _string_format("skip:%.0f", seq), 1)
end

--- Step over the sequence numbers that will never activate; returns whether there were any.
function groups.advance(queue, name, group)
  local seq, key = group.next_seq, hash(queue, name)
  if seq <= 0 then
    return false
  end
  while _redis_call("HDEL", key, _string_format("skip:%.0f", seq)) == 1 do
    seq = seq + 1
    if seq - group.next_seq == MOST_SKIPS then
      groups.wake_soon(queue, name)
      break
    end
  end
  if seq == group.next_seq then
    return false
  end
  group.next_seq = seq
  groups.write(queue, name, "nextSeq", seq)
  return true
end

--- Park a job until admission.
function groups.park(queue, name, job_id, score)
  guarded.call("ZADD", groups.parked_key(queue, name), score, job_id)
  _redis_call("HSET", queue .. "job:" .. job_id, "state", "group-waiting")
end

--- The rank of a job among the parked.
function groups.park_score(job_id, job)
  local seq = _tonumber(job.orderingSeq) or 0
  return seq > 0 and seq or _tonumber(job_id) or _tonumber(job.timestamp) or 0
end

--- Leave the group alone until a given time.
function groups.hold_until(queue, name, due)
  _redis_call("ZADD", queue .. "ratelimited", due, name)
end

--- Note on a group that exists that nothing of it starts until a given time.
function groups.note_hold(queue, name, due)
  if _redis_call("EXISTS", hash(queue, name)) == 1 then
    groups.write(queue, name, "heldUntil", _string_format("%.0f", due))
  end
end

--- Whether the group is held back at run time. Limits have their own counts; a hold has only this.
function groups.is_held(queue, name, group, now)
  if now >= group.held_until then
    return false
  end
  groups.hold_until(queue, name, group.held_until)
  return true
end

--- Have the next promotion check the group, unless it is being held back.
function groups.wake_soon(queue, name)
  _redis_call("ZADD", queue .. "ratelimited", "NX", 0, name)
end

return groups
end)()

modules.membership = (function()
--- How a new job joins its group: its sequence number, and the limits it brings along.

local groups = require("groups")
local tokens = require("tokens")

local membership = {}

--- Whether the job can never have the tokens it costs.
function membership.too_expensive(job)
  local cost = job.cost > 0 and job.cost or tokens.DEFAULT_COST
  return job.tb_capacity > 0 and cost > job.tb_capacity
end

--- The fields of the group that the job's limits change.
local function changes(group, job)
  local fields = {}
  local function set(field, value, current)
    if value ~= current then
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
  end
  if not (job.keeps_concurrency and group.max_concurrency > 0) then
    set("maxConcurrency", _math_max(job.group_concurrency, 1), group.max_concurrency)
  end
  if group.next_seq <= 0 then
    set("nextSeq", 1)
  end
  if job.group_rate_max > 0 then
    set("rateMax", job.group_rate_max, group.rate_max)
    set("rateDuration", job.group_rate_duration_ms, group.rate_duration)
  end
  if job.tb_capacity > 0 then
    set("tbCapacity", job.tb_capacity, group.capacity)
    set("tbRefillRate", job.tb_refill_rate, group.refill_rate)
    if group.capacity <= 0 then
      set("tbTokens", job.tb_capacity)
      set("tbLastRefill", job.timestamp_ms)
      set("tbRefillRemainder", 0)
    end
  end
  return fields
end

--- Join the group of `job.ordering_key`; returns the job's sequence number.
--- A flow's job may only add limits (`keeps_limits`), and its children keep the concurrency in force.
function membership.join(queue, job)
  local name = job.ordering_key
  local group = groups.load(queue, name)
  local fields = changes(group, job)
  if fields[1] then
    groups.write(queue, name, _unpack(fields))
  end
  if job.keeps_limits then
    groups.write_absent(queue, name, "active", 0)
  else
    if job.group_rate_max <= 0 and group.rate_max > 0 then
      groups.forget(queue, name, "rateMax", "rateDuration", "rateWindowStart", "rateCount")
    end
    if job.tb_capacity <= 0 and group.capacity > 0 then
      groups.forget(queue, name, "tbCapacity", "tbRefillRate", "tbTokens", "tbLastRefill", "tbRefillRemainder")
    end
  end
  return _redis_call("HINCRBY", queue .. "ordering", name, 1)
end

return membership
end)()

modules.events = (function()
--- Lifecycle events: one stream per queue, trimmed to about the last thousand, or to what a registered reader still needs.

local guarded = require("guarded")

local events = {}

events.READERS = "events:readers"
-- The field with the earliest position of all readers; no reader's name is empty.
events.SLOWEST = ""

local KEPT = 1000
local MOST, MOST_BYTES = 1000000, 256 * 1024 * 1024
local MOST_PER_CALL = 100000
-- Trimming reads whether anyone reads, so it goes once for many events. A prime, so that a rhythm of several queues
-- leaves none of them out.
local EVERY = 97
local since_trim = 0

--- Drop what exceeds the bounds even if it is unread: the server's memory matters more.
local function limit(key, length)
  local size = _redis_pcall("MEMORY", "USAGE", key, "SAMPLES", 0) -- 1.2 ms for a million events
  local most = MOST
  if _type(size) == "number" and size > MOST_BYTES then
    most = _math_min(most, _math_floor(length * MOST_BYTES / size))
  end
  if length > most then
    guarded.call("XTRIM", key, "MAXLEN", "~", _math_max(KEPT, most), "LIMIT", MOST_PER_CALL)
  end
end

--- Drop old events: what all readers have read, but never the last thousand; without readers, all before these.
local function trim(queue)
  local key = queue .. "events"
  local slowest = guarded.call("HGET", queue .. events.READERS, events.SLOWEST)
  if not slowest then
    guarded.call("XTRIM", key, "MAXLEN", "~", KEPT, "LIMIT", MOST_PER_CALL)
    return
  end
  local length = _redis_call("XLEN", key)
  if length > KEPT then
    guarded.call("XTRIM", key, "MINID", "~", slowest, "LIMIT", _math_min(length - KEPT, MOST_PER_CALL))
    limit(key, _redis_call("XLEN", key))
  end
end

function events.emit(queue, type, job_id, ...)
  _redis_call("XADD", queue .. "events", "*", "event", type, "jobId", job_id, ...)
  since_trim = since_trim + 1
  if since_trim >= EVERY then
    since_trim = 0
    _pcall(trim, queue) -- a user who may not send one of its commands must still be able to end jobs
  end
end

return events
end)()

modules.metrics = (function()
--- Counts of finished jobs and their durations, a pair of fields per minute, kept for a day.

local metrics = {}

local MINUTE_MS = 60000
local DAY_MS = 86400000
local PRUNE_EVERY = 1000
local CHUNK = 1000

local function prune(key, oldest_minute)
  local old = {}
  for _, field in _ipairs(_redis_call("HKEYS", key)) do
    local minute = _tonumber(field:match("^m:(%d+):"))
    if minute and minute < oldest_minute then
      old[#old + 1] = field
    end
  end
  for first = 1, #old, CHUNK do
    _redis_call("HDEL", key, _unpack(old, first, _math_min(first + CHUNK - 1, #old)))
  end
end

local last_minute, last_bucket

--- How the fields of a minute begin.
local function bucket_of(minute)
  if minute ~= last_minute then
    last_minute, last_bucket = minute, _string_format("m:%.0f:", minute)
  end
  return last_bucket
end

--- How long a job has run; 0 when it never started or clocks disagree.
function metrics.duration(now, processed_on)
  local began = _type(processed_on) == "number" and processed_on or _tonumber(processed_on) or now
  return now > began and now - began or 0
end

--- Count jobs and the sum of their durations; `outcome` is `completed` or `failed`.
function metrics.add(queue, outcome, now, jobs, duration)
  local key = queue .. "metrics:" .. outcome
  local minute = now - now % MINUTE_MS
  local bucket = bucket_of(minute)
  local count = _redis_call("HINCRBY", key, bucket .. "c", jobs)
  if duration > 0 then
    _redis_call("HINCRBY", key, bucket .. "d", duration)
  end
  if count % PRUNE_EVERY < jobs then
    prune(key, minute - DAY_MS)
  end
end

--- Count one job; `processed_on` is nil when it never started.
function metrics.record(queue, outcome, now, processed_on)
  metrics.add(queue, outcome, now, 1, metrics.duration(now, processed_on))
end

return metrics
end)()

modules.numbers = (function()
--- Numbers in records, which clients of any language write and anybody may damage.

local numbers = {}

local LONGEST = 15
local LARGEST = 2 ^ 53

--- A whole number as every client writes it; nil for anything else, such as `inf`, `0x10` or `zz`.
function numbers.whole(text)
  if not text or _type(text) == "number" then
    return text or nil
  elseif text == "0" then
    return 0
  end
  return _type(text) == "string" and #text <= LONGEST + 1 and text:match("^-?%d+$") and _tonumber(text) or nil
end

--- A finite number; nil for anything else.
function numbers.finite(text)
  local number = _tonumber(text)
  return number and number > -math.huge and number < math.huge and number or nil
end

local last_number, last_text

--- A number as the wire has it, without a fraction. To write one takes a tenth of a command, three times as long with `%.0f`,
--- and a call writes its time more than once, so the last one is kept.
function numbers.text(number)
  if number ~= last_number then
    local is_exact = number % 1 == 0 and number < LARGEST and number > -LARGEST
    last_number, last_text = number, _string_format(is_exact and "%d" or "%.0f", number)
  end
  return last_text
end

--- Count in a field of a hash. A field that is no whole number counts from 0 again: it must not stop the caller.
function numbers.count(key, field, amount)
  local reply = _redis_pcall("HINCRBY", key, field, amount)
  if _type(reply) == "number" then
    return reply
  end
  _redis_call("HSET", key, field, amount)
  return amount
end

return numbers
end)()

modules.failure = (function()
--- How a job fails for good without a worker's word: the record, the event, the count.

local events = require("events")
local metrics = require("metrics")
local numbers = require("numbers")

local failure = {}

local heard

--- Have `visit(queue, job_id)` called for each job that fails from now on, before anything about it is removed; nil ends
--- that.
function failure.watch(visit)
  heard = visit
end

--- Add the job to the failed ones; the arguments after `now` are further fields and values of its record.
function failure.record(queue, job_id, reason, now, ...)
  _redis_call("ZADD", queue .. "failed", now, job_id)
  _redis_call(
    "HSET", queue .. "job:" .. job_id,
    "state", "failed", "failedReason", reason, "finishedOn", now, ...
  )
  if heard then
    heard(queue, job_id)
  end
end

--- Emit the event of a failure, and count it.
function failure.announce(queue, job_id, reason, now, processed_on, skip_events)
  if not skip_events then
    events.emit(queue, "failed", job_id, "failedReason", reason)
  end
  metrics.record(queue, "failed", now, processed_on)
end

--- Fail a job whose time to live is over.
function failure.expire(queue, job_id, now, processed_on)
  failure.record(queue, job_id, "expired", now, "failureKind", "expired")
  events.emit(queue, "expired", job_id)
  metrics.record(queue, "failed", now, processed_on)
end

function failure.has_expired(job, now)
  local expire_at = job.expireAt and numbers.finite(job.expireAt) or 0
  return expire_at > 0 and now > expire_at
end

return failure
end)()

modules.purge = (function()
--- Removes jobs with all they left behind.

local chunks = require("chunks")
local events = require("events")
local guarded = require("guarded")

local purge = {}

local PARTS = { "job:", "log:", "deps:", "parents:", "jstream:", "signals:" }
local JOBS_PER_COMMAND = 100

-- Enough for a flow to end, after which its own record says how.
local ENDS_KEPT_S = 30 * 86400
local LONGEST_REASON = 500

--- Note how nodes of flows ended, whose records are about to be removed: nothing else says so of a node that none waits
--- for. Ids of nodes have a dot, so that other jobs cost no command.
local function note_ends(queue, job_ids)
  for _, job_id in _ipairs(job_ids) do
    if job_id:find(".", 1, true) then
      local record = queue .. "job:" .. job_id
      local fields = _redis_pcall("HMGET", record, "flow", "state", "outcome", "finishedOn", "failedReason")
      local flow, state = fields[1], fields[2]
      if flow and (state == "completed" or state == "failed") then
        local key = queue .. "flow-ends:" .. flow
        local outcome = state == "failed" and fields[3] or state
        local reason = (fields[5] or ""):sub(1, LONGEST_REASON)
        guarded.call("HSET", key, job_id, _table_concat({ outcome, fields[4] or "", reason }, " "))
        _redis_call("EXPIRE", key, ENDS_KEPT_S)
      end
    end
  end
end

function purge.jobs(queue, job_ids)
  note_ends(queue, job_ids)
  for first = 1, #job_ids, JOBS_PER_COMMAND do
    local keys = {}
    for index = first, _math_min(first + JOBS_PER_COMMAND - 1, #job_ids) do
      for _, part in _ipairs(PARTS) do
        keys[#keys + 1] = queue .. part .. job_ids[index]
      end
    end
    _redis_call("UNLINK", _unpack(keys))
  end
end

--- Take jobs out of a sorted set.
function purge.members(key, job_ids)
  chunks.call(job_ids, "ZREM", key)
end

--- Remove jobs that finished at a time or before, oldest first; returns their ids.
function purge.finished(queue, key, cutoff_ms, limit)
  if limit <= 0 or not cutoff_ms then
    return {}
  end
  local job_ids = _redis_call("ZRANGE", key, "-inf", _string_format("%.0f", cutoff_ms), "BYSCORE", "LIMIT", 0, limit)
  if job_ids[1] then
    purge.jobs(queue, job_ids)
    purge.members(key, job_ids)
    events.emit(queue, "cleaned", #job_ids)
  end
  return job_ids
end

return purge
end)()

modules.record = (function()
--- The job's hash, read.

local numbers = require("numbers")

local record = {}

--- What decides about a job: everything but its payloads.
local CONTROL = {
  "state", "name", "groupKey", "orderingSeq", "orderingKey", "expireAt", "processedOn", "lastActive",
  "lifo", "priority", "takenFrom", "cost", "timestamp", "revoked", "depsCompleted", "share", "entry",
}

--- The control fields as a table without the absent ones; nil when there is no such job.
function record.load(queue, job_id)
  local key = queue .. "job:" .. job_id
  -- A key that is not a hash is not a job: it must not keep its neighbors from being read.
  local values = _redis_pcall("HMGET", key, _unpack(CONTROL))
  if values.err then
    return nil
  end
  local job, found = {}, false
  for index = 1, #CONTROL do
    if values[index] then
      job[CONTROL[index]], found = values[index], true
    end
  end
  if found or _redis_call("EXISTS", key) == 1 then
    return job
  end
  return nil
end

--- The queue and the id that a job's key names.
function record.locate(job_key)
  return job_key:match("^(.*:)job:([^:]*)$")
end

--- The names of the control fields, as a set.
function record.control()
  local names = {}
  for index = 1, #CONTROL do -- a library has no `ipairs` while it loads
    names[CONTROL[index]] = true
  end
  return names
end

--- When a job was due on its queue: by its record, or by `otherwise`.
function record.arrival(queue, job_id, otherwise)
  local times = _redis_call("HMGET", queue .. "job:" .. job_id, "timestamp", "delay")
  local time = _tonumber(times[1] or nil) or _tonumber(otherwise)
  return time and time + (_tonumber(times[2]) or 0)
end

function record.has_ended(job)
  return job.state == "completed" or job.state == "failed"
end

function record.sequence(job)
  return numbers.whole(job.orderingSeq) or 0
end

function record.priority(job)
  return numbers.whole(job.priority) or 0
end

return record
end)()

modules.ordering = (function()
--- Finished sequence numbers of jobs made by libraries older than 93, which carry an `orderingKey`.

local ordering = {}

--- Note that a sequence number of a key has finished, and move the contiguous mark as far as it goes.
function ordering.done(queue, key, sequence)
  local seq = key and key ~= "" and _tonumber(sequence) or 0
  if seq <= 0 then
    return
  end
  local mark = "orderdone:" .. key
  local pending = queue .. "orderdone:pending:" .. key
  local last = _tonumber(_redis_call("HGET", queue .. "meta", mark)) or 0
  if seq <= last then
    _redis_call("HDEL", pending, seq)
    return
  end
  _redis_call("HSET", pending, seq, 1)
  local reached = last
  while _redis_call("HDEL", pending, reached + 1) == 1 do
    reached = reached + 1
  end
  if reached > last then
    _redis_call("HSET", queue .. "meta", mark, reached)
  end
end

return ordering
end)()

modules.stream = (function()
--- The `stream`: ready jobs in order of arrival, and their pending entries in the consumer group.

local record = require("record")

-- The `entry` of a job that waits in a list although its options don't say so.
local stream = { NONE = "" }

local PAGE = 1000
local NEIGHBORS = 250
-- Above it a number no longer tells one id from the next, and halving would not end.
local MOST_EXACT = 2 ^ 53

--- Append an entry; returns its id. What follows `name` goes into the entry.
function stream.append(queue, job_id, name, ...)
  return _redis_call("XADD", queue .. "stream", "*", "jobId", job_id, "name", name or "", ...)
end

--- Make a job ready; returns its entry's id. The record keeps it as `entry`, by which the job is found again.
function stream.push(queue, job_id, name)
  local entry_id = stream.append(queue, job_id, name)
  _redis_call("HSET", queue .. "job:" .. job_id, "entry", entry_id)
  return entry_id
end

--- The value of one field of an entry; nil when absent.
function stream.field(fields, name)
  if fields[1] == name then
    return fields[2]
  end
  for index = 1, #fields, 2 do
    if fields[index] == name then
      return fields[index + 1]
    end
  end
  return nil
end

--- Acknowledge an entry, and remove it from the stream unless other groups read it, too.
function stream.settle(queue, group, entry_id, broadcast)
  if entry_id == "" or group == "" then
    return
  end
  _redis_call("XACK", queue .. "stream", group, entry_id)
  if not broadcast then
    _redis_call("XDEL", queue .. "stream", entry_id)
  end
end

--- Call `visit(entries)` for each page of `size` entries, oldest first, until it returns true.
function stream.pages(key, size, visit)
  local from = "-"
  repeat
    local page = _redis_call("XRANGE", key, from, "+", "COUNT", size)
    if page[1] and visit(page) then
      return
    end
    from = page[1] and "(" .. page[#page][1]
  until #page < size
end

--- Call `visit(entry_id, fields)` for each entry, oldest first, until it returns true.
function stream.walk(key, visit)
  stream.pages(key, PAGE, function(page)
    for _, entry in _ipairs(page) do
      if visit(entry[1], entry[2]) then
        return true
      end
    end
  end)
end

local function precedes_number(one, other)
  return #one < #other or #one == #other and one < other
end

--- Whether an entry is older than another. Compares digits: an id may exceed the numbers that a double holds.
function stream.precedes(entry_id, other_id)
  local time, number = entry_id:match("^(%d+)%-(%d+)$")
  local other_time, other_number = other_id:match("^(%d+)%-(%d+)$")
  if not time or not other_time then
    return false
  elseif time == other_time then
    return precedes_number(number, other_number)
  end
  return precedes_number(time, other_time)
end

local function millisecond_of(key, command, from, to)
  local entry = _redis_call(command, key, from, to, "COUNT", 1)[1]
  return entry and _tonumber(entry[1]:match("^%d+")) or 0
end

--- The lowest id between two, written by `format`, from which on no entry precedes what is searched.
local function bisect(key, precedes, low, high, format)
  while low < high do
    local middle = _math_floor((low + high) / 2)
    local entry = _redis_call("XRANGE", key, _string_format(format, middle), "+", "COUNT", 1)[1]
    if entry and precedes(entry) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function find_in(entries, job_id)
  for _, entry in _ipairs(entries) do
    if stream.field(entry[2], "jobId") == job_id then
      return entry[1]
    end
  end
end

--- Find the entry of a job near where its record says it was added; nil when it is not there, as after a retry, or where
--- an older job was promoted or the clocks of producers disagree.
local function find_near(queue, job_id)
  local key, time, number = queue .. "stream", record.arrival(queue, job_id), _tonumber(job_id)
  -- Whether an entry precedes the job's: by time, and within a bulk of one time by automatic id.
  local function precedes(entry)
    local other_id = stream.field(entry[2], "jobId") or ""
    local other_time = record.arrival(queue, other_id, entry[1]:match("^%d+"))
    if other_time == time then
      local other_number = _tonumber(other_id)
      return number ~= nil and other_number ~= nil and other_number < number
    end
    return other_time < time
  end
  local newest = millisecond_of(key, "XREVRANGE", "+", "-")
  if not time or newest >= MOST_EXACT then
    return nil
  end
  local millisecond = bisect(key, precedes, millisecond_of(key, "XRANGE", "-", "+"), newest, "%.0f")
  local from = _string_format("%.0f", millisecond)
  local last = _redis_call("XREVRANGE", key, from, from, "COUNT", 1)[1]
  local last_sequence = last and _tonumber(last[1]:match("%-(%d+)$"))
  if last and last_sequence < MOST_EXACT then
    local sequence = bisect(key, precedes, 0, last_sequence, from .. "-%.0f")
    from = _string_format("%s-%.0f", from, sequence)
  end
  return find_in(_redis_call("XRANGE", key, from, "+", "COUNT", NEIGHBORS), job_id)
    or find_in(_redis_call("XREVRANGE", key, from, "-", "COUNT", NEIGHBORS), job_id)
end

local function find_anywhere(queue, job_id)
  local found
  stream.walk(queue .. "stream", function(entry_id, fields)
    found = stream.field(fields, "jobId") == job_id and entry_id or nil
    return found ~= nil
  end)
  return found
end

--- The entry that a job's record names, if it is the job's: another library may have made it ready since.
local function find_named(queue, job_id, entry_id)
  local found = entry_id and _redis_pcall("XRANGE", queue .. "stream", entry_id, entry_id) or {}
  return found[1] and find_in(found, job_id)
end

--- Take the entry of a loaded job off the stream; false when it was not found. The entry of a job that another library
--- made ready may be anywhere: it is searched where the job's time says, and a long stream is not walked, for that holds
--- the server for a second in a million entries.
function stream.remove(queue, group, job_id, job)
  local entry_id = find_named(queue, job_id, job.entry)
  if not entry_id and _redis_call("XLEN", queue .. "stream") <= PAGE then
    entry_id = find_anywhere(queue, job_id)
  elseif not entry_id then
    entry_id = find_near(queue, job_id)
  end
  if not entry_id then
    return false
  end
  stream.settle(queue, group, entry_id)
  return true
end

--- Have no entry count that the job has by now: the worker that reads one drops it.
function stream.disown(queue, job_id)
  local last = _redis_call("XREVRANGE", queue .. "stream", "+", "-", "COUNT", 1)[1]
  if last then
    _redis_call("HSET", queue .. "job:" .. job_id, "strayEntry", last[1])
  end
end

--- Whether an entry of a job was disowned. `newest` is what the record says, if it is known.
function stream.is_stray(queue, job_id, entry_id, newest)
  newest = newest or _redis_call("HGET", queue .. "job:" .. job_id, "strayEntry")
  return newest and (entry_id == newest or stream.precedes(entry_id, newest))
end

--- Disown the entry that a cancelled job left before it runs again: with two entries it would run twice. Earlier releases
--- noted only that there is one.
function stream.disown_left(queue, job_id)
  if _redis_call("HEXISTS", queue .. "job:" .. job_id, "strayEntry") == 1 then
    stream.disown(queue, job_id)
  end
end

--- Take a waiting job off the stream: remove its entry, or disown it where a long stream does not show it. False when the
--- job is not there.
function stream.withdraw(queue, group, job_id, job)
  if stream.remove(queue, group, job_id, job) then
    return true
  end
  local is_listed = job.lifo == "1" or record.priority(job) > 0 or job.entry == stream.NONE
  if is_listed or _redis_call("XLEN", queue .. "stream") <= PAGE then
    return false
  end
  stream.disown(queue, job_id)
  return true
end

--- The id of the last entry that the group was given.
function stream.delivered(queue, group)
  local groups = _redis_pcall("XINFO", "GROUPS", queue .. "stream")
  for _, flat in _ipairs(groups.err and {} or groups) do
    if stream.field(flat, "name") == group then
      return stream.field(flat, "last-delivered-id")
    end
  end
  return "0-0"
end

--- Whether a consumer of the group holds an entry.
function stream.is_held(key, group, entry_id)
  local found = _redis_pcall("XPENDING", key, group, entry_id, entry_id, 1)
  return not found.err and found[1] ~= nil
end

--- Entries the group holds; 0 when there is no such group.
function stream.pending(key, group)
  local summary = _redis_pcall("XPENDING", key, group)
  return summary.err and 0 or _tonumber(summary[1]) or 0
end

return stream
end)()

modules.release = (function()
--- Releases parked jobs of a group: when a slot becomes free, a limit has passed, or a job before them was removed.

local events = require("events")
local failure = require("failure")
local groups = require("groups")
local guarded = require("guarded")
local ordering = require("ordering")
local record = require("record")
local stream = require("stream")
local tokens = require("tokens")

local release = {}

local MOST_PROMOTED = 1000
local SPARE_POPS = 20
local MOST_HEADS = 100

local COST_REASON = "cost exceeds token bucket capacity"

--- Fail a job that costs more than its group's bucket ever holds.
function release.reject(queue, job_id, now, processed_on, skip_events)
  failure.record(queue, job_id, COST_REASON, now)
  failure.announce(queue, job_id, COST_REASON, now, processed_on, skip_events)
end

--- Drop a parked job that will not run, so that its sequence number blocks no other job.
local function drop(queue, name, group, seq)
  if group.next_seq > 0 and seq >= group.next_seq then
    groups.skip(queue, name, seq)
  end
end

--- Whether the bucket has what the first parked job costs. Heads that are gone or cost too much leave.
local function bucket_allows(queue, name, group, now)
  if now <= 0 or group.capacity <= 0 then
    return true
  end
  local parked = groups.parked_key(queue, name)
  local level = groups.refill(queue, name, group, now)
  for _ = 1, MOST_HEADS do
    local head = guarded.call("ZRANGE", parked, 0, 0, "WITHSCORES")
    if not head[1] then
      return false
    end
    local job = record.load(queue, head[1])
    local cost = job and (_tonumber(job.cost) or tokens.DEFAULT_COST)
    if job and cost <= level then
      return true
    elseif job and cost <= group.capacity then
      groups.hold_until(queue, name, now + tokens.wait_ms(cost, level, group.refill_rate))
      return false
    end
    _redis_call("ZREM", parked, head[1])
    drop(queue, name, group, _tonumber(head[2]))
    if job then
      release.reject(queue, head[1], now, job.processedOn)
    end
  end
  groups.wake_soon(queue, name)
  return false
end

--- How many jobs the group may start now; a running window that is used up is waited for.
local function room(queue, name, group, now)
  local free = MOST_PROMOTED
  if group.max_concurrency > 0 then
    free = _math_min(free, group.max_concurrency - group.active)
  end
  if now > 0 and group.rate_max > 0 and free > 0 then
    local window = groups.window_room(group, now)
    if window == 0 then
      groups.hold_until(queue, name, group.window_start + group.rate_duration)
    end
    free = _math_min(free, window or group.rate_max)
  end
  return free
end

--- Move one popped job on unless its turn comes after `turn`.
--- Returns `promoted`, `dropped` or `blocked`, and its sequence number.
local function move_on(queue, name, group, job_id, score, turn, now)
  local job = record.load(queue, job_id)
  if not job then
    drop(queue, name, group, score)
    return "dropped"
  elseif job.state ~= "group-waiting" then
    return "dropped"
  end
  local seq = record.sequence(job)
  if now > 0 and failure.has_expired(job, now) then
    failure.expire(queue, job_id, now, job.processedOn)
    drop(queue, name, group, seq)
    return "dropped"
  elseif turn > 0 and seq > turn then
    return "blocked", seq
  end
  _redis_call("HSET", queue .. "job:" .. job_id, "state", "waiting")
  stream.push(queue, job_id, job.name)
  return "promoted", seq
end

--- Move up to `free` parked jobs to the stream, in their turns; returns how many.
--- The stored turn stays where it is: activation moves it. A promoted job still releases the next one here.
local function promote_in_turn(queue, name, group, free, now)
  local parked, promoted = groups.parked_key(queue, name), 0
  local turn = group.next_seq
  for _ = 1, free + SPARE_POPS do
    local popped = promoted < free and guarded.call("ZPOPMIN", parked) or {}
    if not popped[1] then
      return promoted
    end
    local outcome, seq = move_on(queue, name, group, popped[1], _tonumber(popped[2]), turn, now)
    if outcome == "blocked" then
      _redis_call("ZADD", parked, seq, popped[1])
      return promoted
    elseif outcome == "promoted" then
      promoted = promoted + 1
      turn = seq == turn and turn + 1 or turn
    elseif promoted == 0 and groups.advance(queue, name, group) then
      turn = group.next_seq
    end
  end
  if promoted == 0 then
    groups.wake_soon(queue, name)
  end
  return promoted
end

--- Release as many parked jobs as all limits allow; returns how many.
--- With `now` 0 the rate limits are left to the activation.
function release.promote(queue, name, group, now)
  if _redis_call("EXISTS", groups.parked_key(queue, name)) == 0 then
    return 0
  end
  if groups.is_held(queue, name, group, now) then
    return 0
  end
  local free = room(queue, name, group, now)
  if free <= 0 or not bucket_allows(queue, name, group, now) then
    return 0
  end
  groups.advance(queue, name, group)
  return promote_in_turn(queue, name, group, free, now)
end

--- Give a slot of a group back.
function release.slot(queue, name, now)
  if not name or name == "" then
    return
  end
  local group = groups.load(queue, name)
  if group.active > 0 then
    group.active = group.active - 1
    groups.write(queue, name, "active", group.active)
  end
  release.promote(queue, name, group, now)
end

--- A job leaves for good from wherever it was: give its slot back, or step over its turn.
function release.forfeit(queue, job, now)
  local name, seq = job.groupKey, record.sequence(job)
  ordering.done(queue, job.orderingKey, job.orderingSeq)
  if not name or name == "" then
    return
  end
  if job.state == "active" then
    release.slot(queue, name, now)
    return
  end
  if seq <= 0 or record.has_ended(job) then
    return
  end
  local group = groups.load(queue, name)
  if seq >= group.next_seq then
    drop(queue, name, group, seq)
    -- Only jobs whose turn it becomes are woken; without parked jobs, admission advances the turn later.
    if _redis_call("EXISTS", groups.parked_key(queue, name)) == 1 and groups.advance(queue, name, group) then
      release.promote(queue, name, group, now)
    end
  elseif job.state ~= "group-waiting" then
    -- A job that has been active keeps its slot between attempts, except while it is parked.
    release.slot(queue, name, now)
  end
end

--- Expire a job, whatever its state.
function release.expire(queue, job_id, job, now)
  if job.state == "failed" then
    return
  end
  failure.expire(queue, job_id, now, job.processedOn)
  release.forfeit(queue, job, now)
end

--- Fail a job that was cancelled before it started.
function release.revoke(queue, job_id, job, now)
  failure.record(queue, job_id, "revoked", now, "failureKind", "cancelled")
  release.forfeit(queue, job, now)
  events.emit(queue, "revoked", job_id)
end

return release
end)()

modules.shares = (function()
--- Fair shares of a queue. A job that names a share waits in that share's set, and not on the stream. From there jobs move
--- to the stream by stride scheduling: each move advances the virtual time of its share by 1 / weight, and the share of
--- the lowest time is next. Only as many are on the stream as workers want, and a few more, which clients of other
--- languages take as any entry. We keep
---   `shares`          the weights that were set, by share,
---   `share:NAME`      its waiting jobs by priority and arrival,
---   `shares:waiting`  the shares that have any, by virtual time,
---   `shares:served`   those that have none, as long as their time is ahead of the others',
---   `shares:ahead`    entries moved to the stream that may not be delivered yet, and
---   `shared`          in the settings: how many jobs wait, so that workers of other queues need not ask, and
---   `sharedTurns`     there: whose turn is next, the shares' or that of jobs without one, while both have a backlog.

local guarded = require("guarded")
local numbers = require("numbers")
local stream = require("stream")

local shares = {}

local GROUP = "workers"
local MOST_BYTES = 400
-- A priority takes a band of the scores; jobs without one come last.
local BAND, LAST_BAND = 2 ^ 40, 2049
-- How many jobs wait on the stream beyond what a worker asked for: these wake idle workers, and those of other
-- languages live on them. A new share waits behind these.
local SPARE = 8
local MOST_MOVED, MOST_ROUNDS = 100, 10
local MOST_COUNTED = 10000
local AHEAD_TTL_S = 86400

local function key_of(queue, name)
  return queue .. "share:" .. name
end

local function waiting_key(queue)
  return queue .. "shares:waiting"
end

local function served_key(queue)
  return queue .. "shares:served"
end

--- The share that the options of a new job name; nil without one.
function shares.of_options(opts)
  if opts == "{}" or not opts:find('"share"', 1, true) then
    return nil
  end
  local readable, decoded = _pcall(_cjson_decode, opts)
  local name = readable and _type(decoded) == "table" and decoded.share
  local sound = _type(name) == "string" and name ~= "" and #name <= MOST_BYTES and not name:find("[:{}]")
  return sound and name or nil
end

--- Forget how far shares without jobs are ahead, once all others have caught up.
local function forget_served(queue)
  local lowest = guarded.call("ZRANGE", waiting_key(queue), 0, 0, "WITHSCORES")
  if lowest[1] then
    guarded.call("ZREMRANGEBYSCORE", served_key(queue), "-inf", lowest[2])
  else
    _redis_call("UNLINK", served_key(queue))
    _redis_call("HDEL", queue .. "meta", "shared", "sharedTurns")
  end
end

--- A share has a job to wait for. One that had none starts at the lowest time: it was not owed anything meanwhile.
local function join(queue, name)
  if guarded.call("ZSCORE", waiting_key(queue), name) then
    return
  end
  local lowest = _redis_call("ZRANGE", waiting_key(queue), 0, 0, "WITHSCORES")
  local own = lowest[1] and guarded.call("ZSCORE", served_key(queue), name)
  _redis_call("ZADD", waiting_key(queue), _math_max(_tonumber(lowest[2]) or 0, _tonumber(own or nil) or 0), name)
  if own then
    _redis_call("ZREM", served_key(queue), name)
  end
end

--- Have a job wait in its share, behind those of its priority. It is moved on by `shares.feed`, to be called when its
--- record says that it waits.
function shares.enter(queue, job_id, name, priority)
  local band = BAND * (priority > 0 and _math_min(priority, LAST_BAND) or LAST_BAND)
  local from, to = _string_format("(%.0f", band + BAND), _string_format("%.0f", band)
  local key = key_of(queue, name)
  local last = guarded.call("ZRANGE", key, from, to, "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES")
  local score = last[2] and _tonumber(last[2]) + 1 or band
  local is_new = _redis_call("ZADD", key, "NX", _string_format("%.0f", score), job_id) == 1
  join(queue, name)
  if is_new then
    numbers.count(queue .. "meta", "shared", 1)
  end
end

--- Take a job out of its share; returns whether it waited there.
function shares.remove(queue, job_id, name)
  local key = key_of(queue, name)
  if guarded.call("ZREM", key, job_id) == 0 then
    return false
  end
  numbers.count(queue .. "meta", "shared", -1)
  if _redis_call("EXISTS", key) == 0 then
    local time = guarded.call("ZSCORE", waiting_key(queue), name)
    if time then
      _redis_call("ZREM", waiting_key(queue), name)
      guarded.call("ZADD", served_key(queue), time, name)
    end
    forget_served(queue)
  end
  return true
end

--- Whether any job waits in a share.
function shares.any_wait(queue)
  return guarded.call("EXISTS", waiting_key(queue)) == 1
end

--- Whether a job waits in its share, and that is among those that are served.
function shares.holds(queue, job_id, name)
  local waits = name and guarded.call("ZSCORE", key_of(queue, name), job_id)
  return waits and guarded.call("ZSCORE", waiting_key(queue), name)
end

--- Read the shares that may be served by `most` turns: more than these cannot come to have the lowest time.
local function candidates(queue, most)
  local flat = guarded.call("ZRANGE", waiting_key(queue), 0, most - 1, "WITHSCORES")
  local found, names = {}, {}
  for index = 1, #flat, 2 do
    local name = flat[index]
    names[#names + 1] = name
    found[#found + 1] = {
      name = name,
      time = _tonumber(flat[index + 1]),
      size = guarded.call("ZCARD", key_of(queue, name)),
      turns = 0,
    }
  end
  local weights = names[1] and guarded.call("HMGET", queue .. "shares", _unpack(names)) or {}
  for index, share in _ipairs(found) do
    share.weight = _math_max(1, numbers.whole(weights[index] or nil) or 1)
  end
  return found
end

--- Give out turns; returns the shares in that order.
local function take_turns(found, most)
  local turns = {}
  for turn = 1, most do
    local next_one
    for _, share in _ipairs(found) do
      if share.turns < share.size and (not next_one or share.time < next_one.time) then
        next_one = share
      end
    end
    if not next_one then
      break
    end
    turns[turn] = next_one
    next_one.turns = next_one.turns + 1
    next_one.time = next_one.time + 1 / next_one.weight
  end
  return turns
end

--- Pop the jobs of a share's turns, and update its virtual time.
local function pop(queue, share)
  share.popped = share.turns > 0 and guarded.call("ZPOPMIN", key_of(queue, share.name), share.turns) or {}
  if share.turns < share.size then
    if share.turns > 0 then
      _redis_call("ZADD", waiting_key(queue), share.time, share.name)
    end
    return
  end
  _redis_call("ZREM", waiting_key(queue), share.name)
  guarded.call("ZADD", served_key(queue), share.time, share.name)
end

--- Take up to `most` waiting jobs, at most 100, in the order of their turns; returns their ids.
function shares.take(queue, most)
  most = _math_min(most, MOST_MOVED)
  local found = candidates(queue, most)
  if not found[1] then
    return {}
  end
  local turns, job_ids, used = take_turns(found, most), {}, {}
  for _, share in _ipairs(found) do
    pop(queue, share)
  end
  for _, share in _ipairs(turns) do
    used[share] = (used[share] or 0) + 1
    job_ids[#job_ids + 1] = share.popped[2 * used[share] - 1]
  end
  numbers.count(queue .. "meta", "shared", -#job_ids)
  forget_served(queue)
  return job_ids
end

--- How many of the entries moved to the stream are there and undelivered. Those before the first undelivered entry of any
--- job are delivered, or were removed.
local function count_ahead(queue)
  local key = queue .. "shares:ahead"
  local entry_ids = guarded.call("LRANGE", key, 0, -1)
  if not entry_ids[1] then
    return 0
  end
  local after = stream.delivered(queue, GROUP)
  local first = _redis_call("XRANGE", queue .. "stream", "(" .. after, "+", "COUNT", 1)[1]
  local gone = 0
  while entry_ids[gone + 1] and (not first or stream.precedes(entry_ids[gone + 1], first[1])) do
    gone = gone + 1
  end
  if gone > 0 then
    _redis_call("LTRIM", key, gone, -1)
  end
  return #entry_ids - gone
end

--- Move the job to the stream if it waits; returns its entry. Another library may have cancelled or removed it.
local function move(queue, job_id)
  local job = _redis_pcall("HMGET", queue .. "job:" .. job_id, "state", "name")
  return job[1] == "waiting" and stream.push(queue, job_id, job[2] or "") or nil
end

--- Whether the stream holds more jobs of others than may precede ours: behind these, a share would wait for all of them.
local function is_behind(queue, ahead)
  local size = _redis_call("XLEN", queue .. "stream") - ahead
  return size > SPARE and size - stream.pending(queue .. "stream", GROUP) > SPARE
end

--- Take the part of `most` starts that shares get while the stream holds a backlog of jobs without a share: every second
--- one. Returns the jobs' ids, to be started as those of a list.
function shares.overtake(queue, most)
  if most < 1 or not is_behind(queue, count_ahead(queue)) then
    return {}
  end
  local part = _math_floor(most / 2)
  if most % 2 == 1 then
    part = part + _redis_call("HINCRBY", queue .. "meta", "sharedTurns", 1) % 2
  end
  return part > 0 and shares.take(queue, part) or {}
end

--- Move jobs to the stream until `wanted` and a few more wait there; returns how many were moved. None is moved behind a
--- backlog of other jobs, unless `anyway`.
function shares.feed(queue, wanted, anyway)
  if not shares.any_wait(queue) then
    return 0
  end
  local ahead = count_ahead(queue)
  local room = _math_min(wanted, MOST_MOVED) + SPARE - ahead
  if room <= 0 or not anyway and is_behind(queue, ahead) then
    return 0
  end
  local entry_ids = {}
  for _ = 1, MOST_ROUNDS do
    local job_ids = room > #entry_ids and shares.take(queue, room - #entry_ids) or {}
    if not job_ids[1] then
      break
    end
    for _, job_id in _ipairs(job_ids) do
      entry_ids[#entry_ids + 1] = move(queue, job_id)
    end
  end
  if entry_ids[1] then
    guarded.call("RPUSH", queue .. "shares:ahead", _unpack(entry_ids))
    _redis_call("EXPIRE", queue .. "shares:ahead", AHEAD_TTL_S)
  end
  return #entry_ids
end

--- Move jobs on though no worker asks, and count those that wait again where another client removed the count. Clients
--- that know no shares take jobs from the stream alone: `anyway` moves some there behind whatever it holds.
function shares.mend(queue, anyway)
  if not shares.any_wait(queue) then
    _redis_call("HDEL", queue .. "meta", "shared")
    return
  end
  shares.feed(queue, 0, anyway)
  local names = guarded.call("ZRANGE", waiting_key(queue), 0, MOST_COUNTED - 1)
  if names[1] and (_tonumber(_redis_call("HGET", queue .. "meta", "shared") or nil) or 0) <= 0 then
    local size = 0
    for _, name in _ipairs(names) do
      size = size + guarded.call("ZCARD", key_of(queue, name))
    end
    _redis_call("HSET", queue .. "meta", "shared", size)
  end
end

return shares
end)()

modules.withdrawal = (function()
--- Takes single jobs out of the lists of ready ones, `lifo` and `priority`, and out of shares, however long these are.

local guarded = require("guarded")
local record = require("record")
local shares = require("shares")

local withdrawal = {}

-- LPOS compares some 30 elements in a microsecond.
local NEAR = 20000
local NEIGHBORS = 250
-- A tombstone replaces a job: no job has such an id, so a client that pops it finds no record, and drops it. It keeps
-- the priority, by which other jobs are placed in the list.
local TOMBSTONE = "{removed}"

--- The priority of the job that a tombstone replaces; nil for a job id.
function withdrawal.read_tombstone(element)
  return element:match("^" .. TOMBSTONE .. "(%d+)$")
end

--- The index of a LIFO job near where its record says it was added; nil when it is not there, as after a retry.
local function bisect(queue, key, job_id, length)
  local time, number = record.arrival(queue, job_id), _tonumber(job_id)
  if not time then
    return nil
  end
  local low, high = 0, length
  while low < high do
    local middle = _math_floor((low + high) / 2)
    local other = _redis_call("LINDEX", key, middle)
    local other_time, other_number = record.arrival(queue, other, 0), _tonumber(other)
    if other_time < time or other_time == time and number and other_number and other_number < number then
      low = middle + 1
    else
      high = middle
    end
  end
  local first = _math_max(0, low - NEIGHBORS)
  for index, other in _ipairs(_redis_call("LRANGE", key, first, low + NEIGHBORS)) do
    if other == job_id then
      return first + index - 1
    end
  end
end

--- Where a job waits on a list, from 0; nil when it does not, or far from both ends of a list that is in no order.
function withdrawal.find(queue, list, job_id)
  local key = queue .. list
  local length = _redis_call("LLEN", key)
  return _redis_call("LPOS", key, job_id, "MAXLEN", NEAR)
    or length > NEAR and _redis_call("LPOS", key, job_id, "RANK", -1, "MAXLEN", NEAR)
    or length > 2 * NEAR and list == "lifo" and bisect(queue, key, job_id, length)
    or nil
end

--- Note that a job may have been left in the middle of a long list, where a search would take 15 ms in a million: a worker
--- that pops it starts it only if it waits. Returns false if the list was searched to its end.
function withdrawal.leave(queue, list, job_id)
  if _redis_call("LLEN", queue .. list) <= 2 * NEAR then
    return false
  end
  _redis_call("HSET", queue .. "job:" .. job_id, "strayElement", 1)
  return true
end

local function list_of(job)
  return job.lifo == "1" and "lifo" or record.priority(job) > 0 and "priority"
end

--- Take a job off the list or share where it may wait; returns whether it was found. Far from both ends a tombstone takes its
--- place: to close a gap there takes as long as to search the whole list.
function withdrawal.remove(queue, job_id, job)
  if job.share and shares.remove(queue, job_id, job.share) then
    return true
  end
  local list = list_of(job)
  local index = list and withdrawal.find(queue, list, job_id)
  if not index then
    return false
  end
  local key = queue .. list
  if index < NEAR then
    _redis_call("LREM", key, 1, job_id)
  elseif _redis_call("LLEN", key) - index <= NEAR then
    _redis_call("LREM", key, -1, job_id)
  else
    _redis_call("LSET", key, index, _string_format("%s%.0f", TOMBSTONE, record.priority(job)))
  end
  return true
end

--- The same for a job that keeps its record, which may also be left in the middle of a list; false when it is in none.
function withdrawal.withdraw(queue, job_id, job)
  if withdrawal.remove(queue, job_id, job) then
    return true
  end
  local list = list_of(job)
  local is_taken = list and guarded.call("ZSCORE", queue .. "list-active:jobs", job_id)
  return list and not is_taken and withdrawal.leave(queue, list, job_id)
end

return withdrawal
end)()

modules.overdue = (function()
--- Jobs whose time to live is over, but which no worker has read since. They will not run, so they must not keep others
--- from being added.

local failure = require("failure")
local guarded = require("guarded")
local purge = require("purge")
local record = require("record")
local release = require("release")
local stream = require("stream")
local withdrawal = require("withdrawal")

local overdue = {}

local GROUP = "workers"

--- Whether a worker that reads the job will find it expired.
function overdue.is(job, now)
  return job.state ~= "active" and not record.has_ended(job) and failure.has_expired(job, now)
end

--- Ways to take a job that has never run from where it waits; each returns whether it was there.
local take = {}

function take.waiting(queue, job_id, job)
  return withdrawal.remove(queue, job_id, job) or job.lifo ~= "1" and stream.remove(queue, GROUP, job_id, job)
end

function take.delayed(queue, job_id)
  return _redis_call("ZREM", queue .. "scheduled", job_id) == 1
end

take.prioritized = take.delayed

take["group-waiting"] = function(queue, job_id, job)
  return guarded.call("ZREM", queue .. "groupq:" .. (job.groupKey or ""), job_id) == 1
end

--- Whether a job has expired before it ever ran, and nothing waits for its outcome: its id may go to a new job.
function overdue.yields(queue, job_id, now)
  local job = record.load(queue, job_id)
  return job ~= nil
    and take[job.state] ~= nil
    and not job.processedOn
    and failure.has_expired(job, now)
    and _redis_call("HEXISTS", queue .. "job:" .. job_id, "parentId") == 0
    and _redis_call("EXISTS", queue .. "parents:" .. job_id) == 0
end

--- Expire and remove a job that yields. Returns false and changes nothing if its entry on a long stream was not found: it
--- would start the new job a second time.
function overdue.remove(queue, job_id, now)
  local job = record.load(queue, job_id)
  if not take[job.state](queue, job_id, job) then
    return false
  end
  failure.expire(queue, job_id, now)
  release.forfeit(queue, job, now)
  _redis_call("ZREM", queue .. "failed", job_id)
  purge.jobs(queue, { job_id })
  return true
end

return overdue
end)()

modules.lists = (function()
--- Jobs taken from the priority and LIFO lists. No consumer group knows which worker has them, so we keep
---   `list-active`        how many are taken, as the wire has it, and
---   `list-active:jobs`   which: scored by when they were activated, negative while they are only taken.
--- Another library keeps the count alone. Where the index names fewer jobs than are counted, the keys are scanned.

local chunks = require("chunks")
local guarded = require("guarded")
local record = require("record")

local lists = {}

local TAKEN = -1
local SCAN_PAGE = 500
local MOST_SCANS = 1000

local function index_key(queue)
  return queue .. "list-active:jobs"
end

local function counter_key(queue)
  return queue .. "list-active"
end

function lists.counted(queue)
  return _tonumber(_redis_call("GET", counter_key(queue))) or 0
end

--- Note that jobs were popped: should their worker die before it activates them, they can be found.
function lists.taken(queue, job_ids)
  local members = {}
  for _, job_id in _ipairs(job_ids) do
    members[#members + 1], members[#members + 2] = TAKEN, job_id
  end
  if members[1] then
    guarded.call("ZADD", index_key(queue), _unpack(members))
  end
  return job_ids
end

--- Pop up to `count` jobs, from the LIFO list only when no job has priority.
function lists.pop(queue, count)
  local popped = _redis_call("LMPOP", 2, queue .. "priority", queue .. "lifo", "RIGHT", "COUNT", count)
  return popped and popped[2] or {}
end

function lists.activated(queue, job_id, now)
  guarded.call("ZADD", index_key(queue), now, job_id)
end

--- The consumer that started a job, and when, as one text, which differs for each start.
function lists.taker(consumer, processed_on)
  return consumer .. "@" .. processed_on
end

--- Forget that a job was taken, without a change to the count.
function lists.forget(queue, job_id)
  guarded.call("ZREM", index_key(queue), job_id)
end

--- Count jobs popped from a list as taken by a worker.
function lists.count_in(queue, number)
  if number > 0 then
    _redis_call("INCRBY", counter_key(queue), number)
  end
end

--- Count jobs out again; the count never falls below zero.
local function count_out(queue, number)
  local left = _math_min(lists.counted(queue), number)
  if left > 0 then
    _redis_call("DECRBY", counter_key(queue), left)
  end
end

--- Jobs taken from a list are no longer held by a worker.
function lists.leave_all(queue, job_ids)
  if job_ids[1] then
    chunks.guarded_call(job_ids, "ZREM", index_key(queue))
    count_out(queue, #job_ids)
  end
end

--- No worker holds the job. The call that removed a job that is gone has counted it out already, unless
--- the index still has it.
function lists.leave(queue, job_id, is_gone)
  local indexed = guarded.call("ZREM", index_key(queue), job_id) == 1
  if indexed or not is_gone then
    count_out(queue, 1)
  end
end

--- Whether an active job was taken from a list. Only jobs activated by this library say so themselves.
function lists.holds(job)
  if job.takenFrom then
    return job.takenFrom == "list"
  end
  return job.lifo == "1" or record.priority(job) > 0
end

--- Find active list jobs by scanning every key of the queue; false when there are too many keys.
local function scan(queue, visit)
  local prefix = queue .. "job:"
  local pattern = prefix:gsub("[%*%?%[%]%^\\]", "\\%0") .. "*"
  local cursor = "0"
  for _ = 1, MOST_SCANS do
    local page = _redis_call("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_PAGE, "TYPE", "hash")
    for _, key in _ipairs(page[2]) do
      local job_id = key:sub(#prefix + 1)
      -- No id has a colon: a key with one belongs to a job, but is not its record.
      if not job_id:find(":", 1, true) then
        visit(job_id)
      end
    end
    cursor = page[1]
    if cursor == "0" then
      return true
    end
  end
  return false
end

--- Read the index and drop what no longer belongs there. Returns the active jobs, each `{ id, job }`, and those
--- only taken, each `{ id, since }`. Jobs that another library activated may be missing.
function lists.indexed(queue)
  local active, taken = {}, {}
  local members = guarded.call("ZRANGE", index_key(queue), 0, -1, "WITHSCORES")
  for index = 1, #members, 2 do
    local job_id, score = members[index], _tonumber(members[index + 1])
    local job = record.load(queue, job_id)
    if job and job.state == "active" and lists.holds(job) then
      active[#active + 1] = { id = job_id, job = job }
    elseif job and job.state == "waiting" and score < 0 then
      taken[#taken + 1] = { id = job_id, job = job, since = -score, is_new = score == TAKEN }
    else
      lists.forget(queue, job_id)
    end
  end
  return active, taken
end

--- All jobs taken from a list: those active, those only taken, and whether these are all.
function lists.all(queue)
  local active, taken = lists.indexed(queue)
  if #active + #taken >= lists.counted(queue) then
    return active, taken, true
  end
  local known = {}
  for _, entry in _ipairs(active) do
    known[entry.id] = true
  end
  local complete = scan(queue, function(job_id)
    local job = not known[job_id] and record.load(queue, job_id)
    if job and job.state == "active" and lists.holds(job) then
      known[job_id] = true
      active[#active + 1] = { id = job_id, job = job }
      lists.activated(queue, job_id, _tonumber(job.lastActive) or 0)
    end
  end)
  return active, taken, complete
end

--- Remember when a job was first seen taken but not active.
function lists.seen_taken(queue, job_id, now)
  guarded.call("ZADD", index_key(queue), -now, job_id)
end

--- Whether no worker has a list job.
function lists.is_idle(queue)
  return lists.counted(queue) <= 0 and _redis_call("EXISTS", index_key(queue)) == 0
end

--- Correct the count; returns by how much it was too high.
function lists.heal(queue)
  local counted = lists.counted(queue)
  if counted <= 0 then
    if counted < 0 then
      _redis_call("SET", counter_key(queue), 0)
    end
    return 0
  end
  local active, taken, complete = lists.all(queue)
  local drift = counted - #active - #taken
  if not complete then
    return 0
  end
  if drift > 0 then
    _redis_call("DECRBY", counter_key(queue), drift)
  end
  return drift
end

return lists
end)()

modules.scheduled = (function()
--- The `scheduled` set: a score carries the priority band and the due time, so both order it.

local scheduled = {}

local SHIFT = 2 ^ 42

function scheduled.add(queue, member, priority, due)
  _redis_call("ZADD", queue .. "scheduled", priority * SHIFT + due, member)
end

--- Priority band and due time of a score.
function scheduled.split(score)
  local band = _math_floor(score / SHIFT)
  return band, score - band * SHIFT
end

--- The score as an exact range bound.
function scheduled.bound(band, due)
  return _string_format("%.0f", band * SHIFT + due)
end

--- Band and due time of the lowest member that is in no band below `band`; nil without such a member.
function scheduled.first(key, band)
  local from = band and scheduled.bound(band, 0) or "-inf"
  local lowest = _redis_call("ZRANGE", key, from, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
  if lowest[2] then
    return scheduled.split(_tonumber(lowest[2]))
  end
  return nil
end

--- Due time of the first member of a band that is due after a time; nil without one.
function scheduled.first_after(key, band, time)
  local from, to = "(" .. scheduled.bound(band, time), "(" .. scheduled.bound(band + 1, 0)
  local lowest = _redis_call("ZRANGE", key, from, to, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
  if lowest[2] then
    return _select(2, scheduled.split(_tonumber(lowest[2])))
  end
  return nil
end

return scheduled
end)()

modules.placement = (function()
--- Places jobs that are not active.

local chunks = require("chunks")
local lists = require("lists")
local record = require("record")
local scheduled = require("scheduled")
local shares = require("shares")
local stream = require("stream")
local withdrawal = require("withdrawal")

local placement = {}

-- How far from an end of the priority list a job takes its place. Further in, it would take 30 ms in a million.
local REACH = 500

local function runs_before(list, index, queue, priority)
  local other = _redis_call("LINDEX", list, index)
  local others = withdrawal.read_tombstone(other) or _redis_call("HGET", queue .. "job:" .. other, "priority")
  return priority < (_tonumber(others) or 0)
end

--- How many jobs of the priority list run later than a job of a priority, and how many before it.
local function find_place(queue, list, priority)
  local length = _redis_call("LLEN", list)
  -- Usually it belongs to the very end, the left, which the first comparison finds.
  if length == 0 or not runs_before(list, 0, queue, priority) then
    return 0, length
  end
  local low, high = 1, length
  while low < high do
    local middle = _math_floor((low + high) / 2)
    if runs_before(list, middle, queue, priority) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low, length - low
end

local function append_reversed(words, more)
  for index = #more, 1, -1 do
    words[#words + 1] = more[index]
  end
end

--- Enter jobs of one priority into the priority list, which runs from its right end: behind their equals, before all they
--- precede. In the middle of a long list, as only glidemq_promote makes it, they go to the end, as glide-mq puts them all.
local function enlist(queue, job_ids, priority)
  local list = queue .. "priority"
  local later, earlier = find_place(queue, list, priority)
  if later > REACH and earlier > REACH then
    later = 0
  end
  local words = {}
  if later <= earlier then
    for index, job_id in _ipairs(job_ids) do
      words[index] = job_id
    end
    append_reversed(words, later > 0 and _redis_call("LPOP", list, later) or {})
    chunks.call(words, "LPUSH", list)
  else
    append_reversed(words, job_ids)
    append_reversed(words, earlier > 0 and _redis_call("RPOP", list, earlier) or {})
    chunks.call(words, "RPUSH", list)
  end
end

--- How many jobs of a priority may take their place in the priority list, which is kept short: in `scheduled` they wait in
--- the same order, until workers take jobs from the list.
function placement.room(queue, priority)
  local list = queue .. "priority"
  local length = _redis_call("LLEN", list)
  if length < 2 * REACH then
    return 2 * REACH - length
  end
  return runs_before(list, -REACH, queue, priority) and REACH or 0
end

--- Whether a job that is ready waits in the priority list.
function placement.is_enlisted(job)
  return record.priority(job) > 0 and job.lifo ~= "1" and not job.share
end

--- Make jobs of one priority ready that wait in the priority list.
function placement.enlist(queue, job_ids, priority)
  if job_ids[1] then
    enlist(queue, job_ids, priority)
  end
end

--- Make a job ready.
function placement.ready(queue, job_id, job)
  local priority = record.priority(job)
  if job.lifo == "1" then
    _redis_call("RPUSH", queue .. "lifo", job_id)
  elseif job.share then
    shares.enter(queue, job_id, job.share, priority)
    shares.feed(queue, 0)
  elseif priority > 0 then
    enlist(queue, { job_id }, priority)
  else
    stream.push(queue, job_id, job.name)
  end
end

--- Make a job ready before all that are on the stream, behind those of its priority that wait in the list.
function placement.first(queue, job_id, job)
  _redis_call("HSET", queue .. "job:" .. job_id, "entry", stream.NONE)
  enlist(queue, { job_id }, record.priority(job))
end

--- Defer a job until a time.
function placement.later(queue, member, job, due)
  scheduled.add(queue, member, record.priority(job), due)
end

--- Give a new job its place; returns the state that goes with it, and its entry if it has one. One with a share moves on by `shares.feed`, to be called
--- once its record has that state.
function placement.new(queue, job_id, job)
  if job.delay_ms > 0 then
    scheduled.add(queue, job_id, job.priority, job.timestamp_ms + job.delay_ms)
    return "delayed"
  elseif job.priority > 0 then
    scheduled.add(queue, job_id, job.priority, 0)
    return "prioritized"
  end
  if job.lifo then
    _redis_call("RPUSH", queue .. "lifo", job_id)
  elseif job.share then
    shares.enter(queue, job_id, job.share, 0)
  else
    return "waiting", stream.append(queue, job_id, job.job_name)
  end
  return "waiting"
end

--- Put a job that was popped but never activated back, unless it is on its list already.
function placement.back(queue, job_id, job)
  for _, list in _ipairs({ "priority", "lifo" }) do
    if withdrawal.find(queue, list, job_id) then
      lists.forget(queue, job_id)
      return
    end
    withdrawal.leave(queue, list, job_id)
  end
  lists.leave(queue, job_id)
  placement.ready(queue, job_id, job)
end

return placement
end)()

modules.tags = (function()
--- Jobs by tag. A job's record holds its tags; beside it there is an index, in which a job that is removed stays at first,
--- so that jobs without tags cost nothing. Each change of a tag and each reclaim checks some ids and drops the dead ones.

local guarded = require("guarded")

local tags = { MOST = 20 }

local MOST_BYTES = 400
local SAMPLE = 2
local MOST_CHECKED = 500

local function valid(names)
  local found = {}
  for _, name in _ipairs(_type(names) == "table" and names or {}) do
    if _type(name) == "string" and name ~= "" and #name <= MOST_BYTES and #found < tags.MOST then
      found[#found + 1] = name
    end
  end
  return found
end

--- The tags in the field of a record; none when another client damaged it.
function tags.read(stored)
  local readable, names = _pcall(_cjson_decode, stored or "[]")
  return valid(readable and names)
end

--- The tags that the options of a new job name; nil without any.
function tags.of_options(opts)
  if opts == "{}" or not opts:find('"tags"', 1, true) then
    return nil
  end
  local readable, decoded = _pcall(_cjson_decode, opts)
  local names = valid(readable and _type(decoded) == "table" and decoded.tags)
  return names[1] and names
end

local function has(queue, job_id, name)
  local stored = _redis_pcall("HGET", queue .. "job:" .. job_id, "tags")
  for _, each in _ipairs(_type(stored) == "string" and tags.read(stored) or {}) do
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
  for _, job_id in _ipairs(guarded.call("ZRANDMEMBER", queue .. "tag:" .. name, most)) do
    if not has(queue, job_id, name) then
      _redis_call("ZREM", queue .. "tag:" .. name, job_id)
    end
  end
  count(queue, name)
end

--- Enter a job under tags, which its record holds already. Checking two for one that comes in bounds the dead ones.
function tags.enter(queue, job_id, names, now)
  for _, name in _ipairs(names) do
    guarded.call("ZADD", queue .. "tag:" .. name, _string_format("%.0f", now), job_id)
    sweep(queue, name, SAMPLE)
  end
end

--- Take a job out from under tags.
function tags.leave(queue, job_id, names)
  for _, name in _ipairs(names) do
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
    local job_ids = guarded.call("ZRANGE", key, first, first + _math_min(limit - #found, MOST_CHECKED) - 1)
    for _, job_id in _ipairs(job_ids) do
      if has(queue, job_id, name) then
        found[#found + 1] = job_id
      else
        _redis_call("ZREM", key, job_id)
      end
    end
    checked, ended = checked + #job_ids, not job_ids[1]
  end
  count(queue, name)
  return found, not ended
end

return tags
end)()

modules.creation = (function()
--- Creates jobs; every function that adds one uses this.

local ids = require("ids")
local membership = require("membership")
local overdue = require("overdue")
local placement = require("placement")
local shares = require("shares")
local tags = require("tags")

local creation = {}

--- Why the job cannot be created; nil when it can, and then a job that had its id, but expired before it ran, is removed.
--- Otherwise nothing is written. `replaced_id` is as good as gone.
function creation.problem(queue, job, replaced_id)
  local is_taken = job.custom_id ~= "" and job.custom_id ~= replaced_id and ids.exists(queue, job.custom_id)
  if is_taken and not overdue.yields(queue, job.custom_id, job.timestamp_ms) then
    return "duplicate"
  elseif job.ordering_key ~= "" and membership.too_expensive(job) then
    return "ERR:COST_EXCEEDS_CAPACITY"
  elseif is_taken and not overdue.remove(queue, job.custom_id, job.timestamp_ms) then
    return "duplicate"
  end
  return nil
end

local NONE = {}

--- The fields with one more; the first makes the list.
local function with(fields, name, value)
  if not fields then
    return { name, value }
  end
  local size = #fields
  fields[size + 1], fields[size + 2] = name, value
  return fields
end

--- The fields that only some jobs have.
local function optional_fields(job, sequence, names, entry_id)
  local fields
  if sequence then
    fields = { "groupKey", job.ordering_key, "orderingSeq", sequence }
  end
  if job.cost > 0 then
    fields = with(fields, "cost", job.cost)
  end
  if job.ttl_ms > 0 then
    fields = with(fields, "expireAt", job.timestamp_ms + job.ttl_ms)
  end
  if job.parent_id ~= "" then
    fields = with(fields, "parentId", job.parent_id)
    if job.parent_queue ~= "" then
      fields = with(fields, "parentQueue", job.parent_queue)
    end
  end
  if job.scheduler_name and job.scheduler_name ~= "" then
    fields = with(fields, "schedulerName", job.scheduler_name)
  end
  if job.lifo then
    fields = with(fields, "lifo", "1")
  end
  if names then
    fields = with(fields, "tags", _cjson_encode(names))
  end
  if job.share then
    fields = with(fields, "share", job.share)
  end
  if entry_id then
    fields = with(fields, "entry", entry_id)
  end
  return fields or NONE
end

--- Write a job whose id is taken. With a `state` it gets no place: another call releases it. One of many is moved on from its
--- share by the caller, after the last.
function creation.write(queue, job_id, job, state)
  local sequence = job.ordering_key ~= "" and membership.join(queue, job) or nil
  local names = tags.of_options(job.opts)
  job.share = shares.of_options(job.opts)
  local entry_id
  if not state then
    state, entry_id = placement.new(queue, job_id, job)
  end
  -- Zeros are common, and a text costs less to send than a number.
  _redis_call(
    "HSET", queue .. "job:" .. job_id, "id", job_id, "name", job.job_name, "data", job.data, "opts", job.opts,
    "timestamp", job.timestamp_ms, "attemptsMade", "0",
    "delay", job.delay_ms == 0 and "0" or job.delay_ms, "priority", job.priority == 0 and "0" or job.priority,
    "maxAttempts", job.max_attempts == 0 and "0" or job.max_attempts, "state", state,
    _unpack(optional_fields(job, sequence, names, entry_id))
  )
  if names then
    tags.enter(queue, job_id, names, job.timestamp_ms)
  end
  if job.share and state == "waiting" and not job.is_of_many then
    shares.feed(queue, 0)
  end
end

--- Create a job without a problem; returns its id, or the reply when there is no id left for it.
--- `taken_id` is an id that was taken for it before.
function creation.job(queue, job, parent_deps_key, taken_id)
  local job_id = taken_id or ids.take(queue, job.custom_id)
  if not job_id then
    return nil, "ERR:ID_EXHAUSTED"
  end
  if job.parent_id ~= "" and job.parent_queue and job.parent_queue ~= "" and parent_deps_key then
    _redis_call("SADD", parent_deps_key, queue .. job_id)
  end
  creation.write(queue, job_id, job)
  return job_id
end

return creation
end)()

modules.graph = (function()
--- A parent and its children, from the arguments of addFlow: reads options and assigns ids.

local ids = require("ids")
local membership = require("membership")

local graph = {}

local function section(options, name)
  return _type(options[name]) == "table" and options[name] or {}
end

local function number(value)
  return _tonumber(value) or 0
end

--- The job that a name, a payload and the JSON text of options describe.
local function describe(spec)
  local readable, options = _pcall(_cjson_decode, spec.opts)
  options = readable and _type(options) == "table" and options or {}
  local ordering = section(options, "ordering")
  local rate, bucket = section(ordering, "rateLimit"), section(ordering, "tokenBucket")
  spec.ordering_key = _type(ordering.key) == "string" and ordering.key or ""
  spec.group_concurrency = number(ordering.concurrency)
  spec.group_rate_max = number(rate.max)
  spec.group_rate_duration_ms = number(rate.duration)
  spec.tb_capacity = _math_floor(number(bucket.capacity) * 1000)
  spec.tb_refill_rate = _math_floor(number(bucket.refillRate) * 1000)
  spec.cost = _math_floor(number(options.cost) * 1000)
  spec.ttl_ms = number(options.ttl)
  spec.keeps_limits = true
  return spec, options
end

function graph.parent(spec)
  spec.parent_id, spec.parent_queue = "", ""
  return (describe(spec))
end

function graph.child(spec, timestamp)
  spec.job_name, spec.timestamp_ms = spec.name, timestamp
  spec.queue = spec.queue_prefix .. ":"
  spec.keeps_concurrency = true
  local _, options = describe(spec)
  spec.lifo = options.lifo == true
  return spec
end

local DUPLICATE, EXHAUSTED = '["duplicate"]', '["ERR:ID_EXHAUSTED"]'

--- Why these jobs cannot be created together; nil when they can.
--- Also returns the job keys that callers chose, which automatic ids must keep clear of.
function graph.problem(queue, parent, children)
  local chosen = {}
  local function is_taken(job_queue, job_id)
    if job_id == "" then
      return false
    end
    local key = job_queue .. "job:" .. job_id
    local taken = chosen[key] or ids.exists(job_queue, job_id)
    chosen[key] = true
    return taken
  end
  if is_taken(queue, parent.custom_id) then
    return DUPLICATE
  end
  for _, child in _ipairs(children) do
    if is_taken(child.queue, child.custom_id) then
      return DUPLICATE
    end
  end
  for _, job in _ipairs({ parent, _unpack(children) }) do
    if membership.too_expensive(job) then
      return "ERR:COST_EXCEEDS_CAPACITY"
    end
  end
  return nil, chosen
end

--- Take an id for each job; returns them, the parent's first. nil and the reply when that is impossible.
function graph.take_ids(queue, parent, children, chosen)
  local parent_id = ids.take(queue, parent.custom_id)
  if not parent_id then
    return nil, EXHAUSTED
  elseif parent.custom_id == "" and chosen[queue .. "job:" .. parent_id] then
    return nil, DUPLICATE
  end
  local taken = { parent_id }
  for index, child in _ipairs(children) do
    local child_id = ids.take(child.queue, child.custom_id, chosen)
    if not child_id then
      return nil, EXHAUSTED
    end
    taken[index + 1] = child_id
  end
  return taken
end

return graph
end)()

modules.reschedule = (function()
--- Changes when a job that has not started runs: its priority, or its delay.

local events = require("events")
local placement = require("placement")
local record = require("record")
local scheduled = require("scheduled")
local shares = require("shares")
local stream = require("stream")

local reschedule = {}

local function update(queue, job_id, ...)
  _redis_call("HSET", queue .. "job:" .. job_id, ...)
end

--- Take a scheduled job to the stream, or to its share.
local function make_ready(queue, job_id, job)
  _redis_call("ZREM", queue .. "scheduled", job_id)
  if job.share then
    placement.ready(queue, job_id, job)
  else
    stream.push(queue, job_id, job.name)
  end
end

local function withdraw(queue, group, job_id, job)
  return job.share and shares.remove(queue, job_id, job.share) or stream.withdraw(queue, group, job_id, job)
end

local by_priority = {}

function by_priority.waiting(queue, job_id, job, group, priority)
  if priority == 0 then
    return "no_op"
  elseif not withdraw(queue, group, job_id, job) then
    return "error:not_in_stream"
  end
  scheduled.add(queue, job_id, priority, 0)
  update(queue, job_id, "state", "prioritized", "priority", priority)
end

function by_priority.prioritized(queue, job_id, job, _, priority)
  if priority == 0 then
    update(queue, job_id, "state", "waiting", "priority", 0)
    job.priority = 0
    make_ready(queue, job_id, job)
  else
    scheduled.add(queue, job_id, priority, 0)
    update(queue, job_id, "priority", priority)
  end
end

function by_priority.delayed(queue, job_id, _, _, priority)
  local score = _redis_call("ZSCORE", queue .. "scheduled", job_id)
  if not score then
    return "error:not_in_scheduled"
  end
  local _, due = scheduled.split(_tonumber(score))
  scheduled.add(queue, job_id, priority, due)
  update(queue, job_id, "priority", priority)
end

local by_delay = {}

function by_delay.waiting(queue, job_id, job, group, delay, now)
  if delay == 0 then
    return "no_op"
  elseif not withdraw(queue, group, job_id, job) then
    return "error:not_in_stream"
  end
  scheduled.add(queue, job_id, record.priority(job), now + delay)
  update(queue, job_id, "state", "delayed", "delay", delay)
end

function by_delay.prioritized(queue, job_id, _, _, delay, now)
  if delay == 0 then
    return "no_op"
  end
  return by_delay.delayed(queue, job_id, nil, nil, delay, now)
end

function by_delay.delayed(queue, job_id, job, _, delay, now)
  local score = _redis_call("ZSCORE", queue .. "scheduled", job_id)
  if not score then
    return "error:not_in_scheduled"
  end
  local band = scheduled.split(_tonumber(score))
  if delay > 0 then
    scheduled.add(queue, job_id, band, now + delay)
    update(queue, job_id, "state", "delayed", "delay", delay)
  elseif band > 0 then
    scheduled.add(queue, job_id, band, 0)
    update(queue, job_id, "state", "prioritized", "delay", 0)
  else
    update(queue, job_id, "state", "waiting", "delay", 0)
    make_ready(queue, job_id, job)
  end
end

--- Apply the change that fits the job's state and emit its event; returns the reply.
local function apply(changes, event, field, queue, job_id, group, value, now)
  local job = record.load(queue, job_id)
  if not job then
    return "error:not_found"
  end
  local change = changes[job.state]
  if not change then
    return "error:invalid_state"
  end
  local refusal = change(queue, job_id, job, group, value, now)
  if refusal then
    return refusal
  end
  events.emit(queue, event, job_id, field, value)
  return "ok"
end

function reschedule.priority(queue, job_id, group, priority)
  if not priority or priority < 0 then
    return "error:invalid_priority"
  end
  return apply(by_priority, "priority-changed", "priority", queue, job_id, group, priority)
end

function reschedule.delay(queue, job_id, group, delay, now)
  if not delay or delay < 0 then
    return "error:invalid_delay"
  elseif not now then
    _error("ERR glidemq_changeDelay: 'now_ms' is missing or malformed", 0)
  end
  return apply(by_delay, "delay-changed", "delay", queue, job_id, group, delay, now)
end

return reschedule
end)()

modules.concurrency = (function()
--- The queue's own limit on active jobs, over all workers.

local lists = require("lists")
local stream = require("stream")

local concurrency = {}

--- How many more jobs may be active; nil when there is no limit.
function concurrency.room(meta_key, stream_key, queue, group)
  local limit = _tonumber(_redis_call("HGET", meta_key, "globalConcurrency")) or 0
  if limit <= 0 then
    return nil
  end
  return _math_max(limit - stream.pending(stream_key, group) - _math_max(lists.counted(queue), 0), 0)
end

return concurrency
end)()

modules.active = (function()
--- What an active job does short of finishing: it leaves its worker, and its record says where to.

local lists = require("lists")
local record = require("record")
local release = require("release")
local stream = require("stream")

local active = {}

--- Take a job off its worker: acknowledge its entry, or count a list job out.
function active.leave(queue, job_id, entry_id, group, broadcast, is_gone)
  if entry_id == "" then
    lists.leave(queue, job_id, is_gone)
  else
    stream.settle(queue, group, entry_id, broadcast)
  end
end

--- Load a job that must be active; nil and the reply when it is not.
function active.load(queue, job_id)
  local job = record.load(queue, job_id)
  if not job then
    return nil, "error:not_found"
  elseif job.state ~= "active" then
    return nil, "error:not_active"
  end
  return job
end

--- A job with a sequence number keeps its slot while it is deferred, so that its followers wait; others release it.
function active.pause_slot(queue, job, now)
  if record.sequence(job) <= 0 then
    release.slot(queue, job.groupKey, now)
  end
end

return active
end)()

modules.flows = (function()
--- Jobs that wait for others: counted on the waiting job, each child once.

local events = require("events")
local guarded = require("guarded")
local numbers = require("numbers")
local shares = require("shares")
local stream = require("stream")

local flows = {}

--- What every key of the parent's queue begins with.
function flows.queue_of(parent_job_key, parent_id)
  return parent_job_key:sub(1, -#parent_id - 5)
end

--- Make a waiting job, perhaps of a share, ready, all it waited for being done.
function flows.resume(queue, job_id, name, share)
  _redis_call("HSET", queue .. "job:" .. job_id, "state", "waiting")
  if share then
    shares.enter(queue, job_id, share, 0)
    shares.feed(queue, 0)
  else
    stream.push(queue, job_id, name)
  end
  events.emit(queue, "active", job_id)
end

--- Notify a parent that the child `member` has completed. A parent that is gone stays gone. `decide()` is called if
--- that does not release it, but it has its own rule.
function flows.notify(queue, parent_id, member, decide)
  local key = queue .. "job:" .. parent_id
  local parent = _redis_call("HMGET", key, "state", "name", "triggerRule", "share")
  if not parent[1] and _redis_call("EXISTS", key) == 0 then
    return
  end
  if _redis_call("HSETNX", key, "depdone:" .. member, 1) == 0 then
    return
  end
  local done = numbers.count(key, "depsCompleted", 1)
  if parent[1] ~= "waiting-children" then
    return
  elseif done >= guarded.call("SCARD", queue .. "deps:" .. parent_id) then
    flows.resume(queue, parent_id, parent[2], parent[4])
  elseif parent[3] and decide then
    decide()
  end
end

--- Call `visit(parent_queue, parent_id)` for all further parents of a job.
function flows.each_registered(queue, job_id, visit)
  for _, parent in _ipairs(guarded.call("SMEMBERS", queue .. "parents:" .. job_id)) do
    local parent_queue, parent_id = parent:match("^(.*:)([^:]*)$")
    if parent_queue then
      visit(parent_queue, parent_id)
    end
  end
end

--- Notify all further parents in the child's own queue; those elsewhere are on other slots.
function flows.notify_registered(queue, job_id)
  flows.each_registered(queue, job_id, function(parent_queue, parent_id)
    if parent_queue == queue then
      flows.notify(queue, parent_id, queue .. job_id)
    end
  end)
end

return flows
end)()

modules.retention = (function()
--- How many finished jobs stay, and how long.

local purge = require("purge")

local retention = {}

local MOST_PER_CALL = 1000

--- Remove jobs that are no longer in a set. A library that keeps some of them sets its own.
retention.discard = purge.jobs

local function remove_oldest(queue, set, number)
  if number <= 0 then
    return
  end
  local popped = _redis_call("ZPOPMIN", queue .. set, _math_min(number, MOST_PER_CALL))
  local ids = {}
  for index = 1, #popped, 2 do
    ids[#ids + 1] = popped[index]
  end
  retention.discard(queue, ids)
end

--- Remove from a set, `completed` or `failed`, which these jobs have just entered, the jobs that the rule does not keep.
function retention.apply(queue, set, job_ids, now, rule)
  if rule.broadcast then
    return
  elseif rule.remove_mode == "true" then
    purge.members(queue .. set, job_ids)
    retention.discard(queue, job_ids)
    return
  end
  if rule.remove_mode == "age_count" and rule.remove_age_s > 0 then
    local cutoff = _string_format("%.0f", now - rule.remove_age_s * 1000)
    remove_oldest(queue, set, _redis_call("ZCOUNT", queue .. set, 0, cutoff))
  end
  if (rule.remove_mode == "age_count" or rule.remove_mode == "count") and rule.remove_count > 0 then
    remove_oldest(queue, set, _redis_call("ZCARD", queue .. set) - rule.remove_count)
  end
end

return retention
end)()

modules.completion = (function()
--- The one way in which a job completes.

local active = require("active")
local events = require("events")
local flows = require("flows")
local metrics = require("metrics")
local numbers = require("numbers")
local ordering = require("ordering")
local record = require("record")
local release = require("release")
local retention = require("retention")

local completion = {}

-- A hint that says the job is known to have none.
local ABSENT = "__"

--- What is known of the job: the caller's hints where it gave them all, else the record.
function completion.known(queue, done)
  local group, key, processed_on = done.group_key_hint, done.ordering_key_hint, done.processed_on_hint
  if group ~= "" and key ~= "" and processed_on ~= "" then
    return {
      groupKey = group ~= ABSENT and group,
      orderingKey = key ~= ABSENT and key,
      orderingSeq = done.ordering_seq_hint,
      processedOn = processed_on,
    }
  end
  local job = record.load(queue, done.job_id) or {}
  return {
    groupKey = group ~= ABSENT and (group ~= "" and group or job.groupKey),
    orderingKey = key ~= ABSENT and (key ~= "" and key or job.orderingKey),
    orderingSeq = done.ordering_seq_hint ~= "" and done.ordering_seq_hint or job.orderingSeq,
    processedOn = processed_on ~= "" and processed_on or job.processedOn,
  }
end

--- Write the result; false when there is no such job, which a record made here would pretend.
function completion.write(queue, done)
  local key = queue .. "job:" .. done.job_id
  local added = _redis_call(
    "HSET", key,
    "state", "completed", "returnvalue", done.returnvalue, "finishedOn", numbers.text(done.now_ms)
  )
  if added == 3 and _redis_call("HLEN", key) == 3 then
    _redis_call("UNLINK", key)
    return false
  end
  return true
end

--- What a job that completed sets free, and the word of it.
function completion.free(queue, done, known)
  ordering.done(queue, known.orderingKey, known.orderingSeq)
  release.slot(queue, known.groupKey, done.now_ms)
  if not done.skip_events then
    events.emit(queue, "completed", done.job_id, "returnvalue", done.returnvalue)
  end
end

--- Complete `done.job_id`. `known` has fields of its record: groupKey, orderingKey, orderingSeq, processedOn.
function completion.settle(queue, done, known, parent_job_key)
  local exists = completion.write(queue, done)
  active.leave(queue, done.job_id, done.entry_id, done.group, done.broadcast, not exists)
  if exists then
    completion.free(queue, done, known)
    if not done.skip_metrics then
      metrics.record(queue, "completed", done.now_ms, known.processedOn)
    end
  end
  if done.deps_member ~= "" and done.parent_id ~= "" and parent_job_key then
    flows.notify(flows.queue_of(parent_job_key, done.parent_id), done.parent_id, done.deps_member)
  end
  if exists then
    flows.notify_registered(queue, done.job_id)
    _redis_call("ZADD", queue .. "completed", numbers.text(done.now_ms), done.job_id)
    retention.apply(queue, "completed", { done.job_id }, done.now_ms, done)
  end
end

return completion
end)()

modules.admission = (function()
--- Admission of a grouped job: its turn, a free slot, tokens, the rate window.

local groups = require("groups")
local guarded = require("guarded")
local record = require("record")
local release = require("release")
local tokens = require("tokens")

local admission = {}

local function park(queue, name, job_id, job, verdict)
  groups.park(queue, name, job_id, groups.park_score(job_id, job))
  return verdict
end

--- Park the job until the tokens it costs are there and the window has room; nil when both hold now.
local function limited(queue, name, group, job_id, job, cost, now)
  local level = group.capacity > 0 and groups.refill(queue, name, group, now)
  local token_wait = level and level < cost and tokens.wait_ms(cost, level, group.refill_rate)
  local window_wait = groups.window_room(group, now) == 0 and group.window_start + group.rate_duration - now
  if not token_wait and not window_wait then
    return nil
  end
  groups.hold_until(queue, name, now + _math_max(token_wait or 0, window_wait or 0))
  return park(queue, name, job_id, job, token_wait and "GROUP_TOKEN_LIMITED" or "GROUP_RATE_LIMITED")
end

--- Deduct what the activation uses.
local function admit(queue, name, group, seq, returning, cost, now)
  local changes = {}
  local function set(field, value)
    changes[#changes + 1], changes[#changes + 2] = field, value
  end
  if group.capacity > 0 then
    set("tbTokens", (group.tokens or group.capacity) - cost)
  end
  if group.rate_max > 0 and group.rate_duration > 0 then
    local running = groups.window_room(group, now)
    set("rateWindowStart", running and group.window_start or now)
    set("rateCount", running and group.rate_count + 1 or 1)
  end
  if not returning then
    set("active", group.active + 1)
    if seq > 0 then
      set("nextSeq", seq + 1)
    end
  end
  if changes[1] then
    groups.write(queue, name, _unpack(changes))
  end
end

--- Let one job in. Returns nil, or why not: the job is then parked, or failed when it costs too much.
--- A job that was active before still has its slot; limits make it pay, but not wait.
function admission.enter(queue, job_id, job, now, skip_events)
  local name, seq = job.groupKey, record.sequence(job)
  local group = groups.load(queue, name)
  local advanced = seq > 0 and groups.advance(queue, name, group)
  local in_sequence = seq > 0 and group.next_seq > 0
  local returning = in_sequence and seq < group.next_seq
  if in_sequence and seq > group.next_seq then
    park(queue, name, job_id, job)
    if advanced then
      release.promote(queue, name, group, now)
    end
    return "GROUP_ORDERED"
  end
  if groups.is_held(queue, name, group, now) then
    return park(queue, name, job_id, job, "GROUP_RATE_LIMITED")
  end
  if not returning and group.max_concurrency > 0 and group.active >= group.max_concurrency then
    return park(queue, name, job_id, job, "GROUP_FULL")
  end
  local cost = _tonumber(job.cost) or tokens.DEFAULT_COST
  if group.capacity > 0 and cost > group.capacity then
    release.reject(queue, job_id, now, job.processedOn, skip_events)
    release.forfeit(queue, job, now)
    return "ERR:COST_EXCEEDS_CAPACITY"
  end
  local verdict = not returning and limited(queue, name, group, job_id, job, cost, now)
  if verdict then
    return verdict
  end
  admit(queue, name, group, seq, returning, cost, now)
  if seq > 0 then
    guarded.call("ZREM", groups.parked_key(queue, name), job_id)
  end
  return nil
end

return admission
end)()

modules.activation = (function()
--- The one way in which a job becomes active.

local admission = require("admission")
local failure = require("failure")
local lists = require("lists")
local numbers = require("numbers")
local record = require("record")
local release = require("release")
local stream = require("stream")

local activation = {}

-- The fields that the activation itself writes, and those that decide about it.
local STAMPED = "stamped"
local DECISIVE = record.control()
DECISIVE.state, DECISIVE.processedOn, DECISIVE.lastActive = STAMPED, STAMPED, STAMPED
DECISIVE.strayEntry, DECISIVE.strayElement = true, true

--- Take a job that did not become active off the worker that fetched it. The caller keeps the list count.
local function put_down(queue, job_id, entry)
  if entry.id == "" then
    lists.forget(queue, job_id)
  else
    stream.settle(queue, entry.group, entry.id, entry.broadcast)
  end
end

--- Whether a list element or a stream entry was left behind when the job was taken from where it waited.
local function is_stray(queue, job_id, job, entry)
  if entry.id == "" then
    return job.strayElement and job.state ~= "waiting"
  end
  return job.strayEntry and stream.is_stray(queue, job_id, entry.id, job.strayEntry)
end

--- Drop what was left behind. A job that was started from a list meanwhile stays noted as such.
local function drop_stray(queue, job_id, job, entry)
  if entry.id ~= "" then
    put_down(queue, job_id, entry)
  elseif job.state == "active" and lists.holds(job) then
    lists.activated(queue, job_id, job.processedOn)
  else
    lists.forget(queue, job_id)
  end
end

--- What the flat record says about whether and how the job may start, as a table, with `stamp` written into the record
--- in the same pass.
local function read_and_stamp(flat, stamp)
  -- Of this size from the start: it would grow four times.
  local job = { state = nil, name = nil, priority = nil, timestamp = nil, processedOn = nil, lastActive = nil }
  for index = 1, #flat, 2 do
    local name = flat[index]
    local role = DECISIVE[name]
    if role then
      job[name] = flat[index + 1]
      if role == STAMPED then
        flat[index + 1] = name == "state" and "active" or stamp
      end
    end
  end
  return job
end

--- Add the stamped fields that the record did not have.
local function complete(flat, job, stamp)
  local size = #flat
  if not job.state then
    flat[size + 1], flat[size + 2], size = "state", "active", size + 2
  end
  if not job.processedOn then
    flat[size + 1], flat[size + 2], size = "processedOn", stamp, size + 2
  end
  if not job.lastActive then
    flat[size + 1], flat[size + 2] = "lastActive", stamp
  end
  return flat
end

--- Only where the job's options mislead about it is it noted whence an active job came. Who took it from a list is not
--- seen in any consumer group, and is noted where it is known.
local function origin(job, entry, stamp)
  local source = entry.id == "" and "list" or "stream"
  local implied = (job.lifo == "1" or record.priority(job) > 0) and "list" or "stream"
  local misleads = (job.takenFrom or implied) ~= source
  if source == "list" and entry.consumer then
    local taker = lists.taker(entry.consumer, stamp)
    if misleads then
      return "takenBy", taker, "takenFrom", source
    end
    return "takenBy", taker
  elseif misleads then
    return "takenFrom", source
  end
end

--- Activate one job. `entry` has `id` (empty from a list), `group` and `broadcast`, and may have `consumer`, who takes it;
--- with `unfinished` a job that has ended is as good as gone.
--- @return the flat record; or nil and why not: empty (no such job), `REVOKED`, `EXPIRED` or a verdict of admission
function activation.try(queue, job_id, entry, now, skip_events)
  local key = queue .. "job:" .. job_id
  local flat = _redis_pcall("HGETALL", key)
  if flat.err or #flat == 0 then
    return nil, ""
  end
  local stamp = numbers.text(now)
  local job = read_and_stamp(flat, stamp)
  if entry.unfinished and record.has_ended(job) then
    return nil, ""
  elseif is_stray(queue, job_id, job, entry) then
    drop_stray(queue, job_id, job, entry)
    return nil, "EXPIRED" -- the wire's word for what is put down and needs no report
  elseif job.revoked == "1" then
    return nil, "REVOKED"
  end
  local verdict
  if failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
    verdict = "EXPIRED"
  elseif job.groupKey and job.groupKey ~= "" then
    verdict = admission.enter(queue, job_id, job, now, skip_events)
  end
  if verdict then
    put_down(queue, job_id, entry)
    return nil, verdict
  end
  _redis_call("HSET", key, "state", "active", "processedOn", stamp, "lastActive", stamp, origin(job, entry, stamp))
  if entry.id == "" then
    lists.activated(queue, job_id, now)
  end
  return complete(flat, job, stamp)
end

return activation
end)()

modules.fetch = (function()
--- Finds the next job for a worker that has just completed one.

local activation = require("activation")
local events = require("events")
local lists = require("lists")
local record = require("record")
local release = require("release")
local shares = require("shares")
local stream = require("stream")

local fetch = {}

local MOST_POPS = 6
local MOST_ENTRIES = 3
-- The stack of a script holds some 8000 words.
local MOST_UNPACKED = 1000

local function activated(completed_id, job_id, entry_id, flat)
  if #flat <= MOST_UNPACKED then
    return { "NEXT_HASH", completed_id, job_id, entry_id, _unpack(flat) }
  end
  local reply = { "NEXT_HASH", completed_id, job_id, entry_id }
  for index = 1, #flat do
    reply[index + 4] = flat[index]
  end
  return reply
end

--- A job cancelled before it reached the list has failed already; one retried since then fails now.
local function drop_revoked(queue, job_id, now)
  local job = record.load(queue, job_id)
  if job and job.state == "waiting" then
    release.revoke(queue, job_id, job, now)
  end
end

local function from_lists(queue, done)
  local entry = { id = "" }
  for _ = 1, MOST_POPS do
    local job_id = lists.pop(queue, 1)[1]
    if not job_id then
      return nil
    end
    local flat, verdict = activation.try(queue, job_id, entry, done.now_ms, done.skip_events)
    if verdict == "REVOKED" then
      drop_revoked(queue, job_id, done.now_ms)
    elseif flat then
      _redis_call("INCR", queue .. "list-active")
      if not done.skip_events then
        events.emit(queue, "active", job_id)
      end
      return activated(done.job_id, job_id, "", flat)
    end
  end
end

--- The next entry of the stream, id and job id; the job id is nil when it has none.
local function read(queue, group, consumer)
  local reply = _redis_pcall(
    "XREADGROUP", "GROUP", group, consumer, "COUNT", 1, "STREAMS", queue .. "stream", ">"
  )
  -- Without the stream or its group nothing is waiting; the worker's own read will say so.
  if not reply or reply.err then
    return nil
  end
  local entry = reply[1][2][1]
  return entry[1], stream.field(entry[2], "jobId")
end

local function from_stream(queue, done)
  for _ = 1, MOST_ENTRIES do
    local entry_id, job_id = read(queue, done.group, done.consumer)
    if not entry_id and shares.feed(queue, 1) > 0 then
      entry_id, job_id = read(queue, done.group, done.consumer)
    end
    if not entry_id then
      break
    end
    local flat, verdict
    if job_id then
      local entry = { id = entry_id, group = done.group }
      flat, verdict = activation.try(queue, job_id, entry, done.now_ms, done.skip_events)
    end
    if flat then
      return activated(done.job_id, job_id, entry_id, flat)
    elseif verdict == "REVOKED" then
      return { "NEXT_REVOKED", done.job_id, job_id, entry_id }
    elseif not job_id or verdict == "" then
      stream.settle(queue, done.group, entry_id)
    elseif verdict ~= "EXPIRED" then
      break
    end
  end
  return { "NEXT_NONE", done.job_id }
end

--- Activate the next job for `done.consumer`; returns the reply of glidemq_completeAndFetchNext.
function fetch.next(queue, done)
  return from_lists(queue, done) or from_stream(queue, done)
end

return fetch
end)()

modules.dedup = (function()
--- Deduplication: one job represents all of the same deduplication id.

local events = require("events")
local failure = require("failure")
local overdue = require("overdue")
local purge = require("purge")
local record = require("record")
local release = require("release")

local dedup = {}

--- The job that was last created under the id: its `id`, `created_ms`, and `job` unless that is gone. nil for none.
function dedup.standing(queue, dedup_key, dedup_id)
  local stored = _redis_call("HGET", dedup_key, dedup_id)
  local job_id, created = (stored or ""):match("^([^:]*):(.*)$")
  if not job_id then
    return nil
  end
  return { id = job_id, created_ms = _tonumber(created) or 0, job = record.load(queue, job_id) }
end

local function unfinished(standing, now)
  local job = standing.job
  return job and job.state and not record.has_ended(job) and not overdue.is(job, now)
end

--- Whether the job expired, and never ran.
local function has_missed_its_time(job, now)
  return job ~= nil and not job.processedOn and job.state ~= "completed" and failure.has_expired(job, now)
end

--- Whether a new job takes the place of the standing one, which has not become ready yet.
function dedup.is_replaced(standing, mode)
  local state = standing and standing.job and standing.job.state
  return mode == "debounce" and (state == "delayed" or state == "prioritized")
end

--- Whether the standing job makes a new one superfluous.
function dedup.stands_in(standing, mode, now, ttl_ms)
  if not standing then
    return false
  elseif mode == "throttle" then
    return ttl_ms > 0 and now - standing.created_ms < ttl_ms and not has_missed_its_time(standing.job, now)
  elseif mode == "simple" or mode == "debounce" then
    return unfinished(standing, now) and not dedup.is_replaced(standing, mode)
  end
  return false
end

--- Remove the standing job for the one that replaces it.
function dedup.remove(queue, standing, now, skip_events)
  _redis_call("ZREM", queue .. "scheduled", standing.id)
  release.forfeit(queue, standing.job, now)
  purge.jobs(queue, { standing.id })
  if not skip_events then
    events.emit(queue, "removed", standing.id)
  end
end

return dedup
end)()

modules.draining = (function()
--- Removes jobs that have not started. Each of these takes an optional limit of jobs.

local purge = require("purge")
local record = require("record")
local release = require("release")
local shares = require("shares")
local stream = require("stream")

local draining = {}

local PAGE = 1000

--- Remove jobs; those of a group no longer hold up the ones behind them.
local function remove(queue, job_ids)
  local grouped = {}
  for _, job_id in _ipairs(job_ids) do
    local job = record.load(queue, job_id)
    if job and job.groupKey then
      grouped[#grouped + 1] = job
    end
  end
  purge.jobs(queue, job_ids)
  for _, job in _ipairs(grouped) do
    release.forfeit(queue, job, 0)
  end
end

--- Ids of those of a page's entries that the group holds.
local function pending(queue, group, page)
  local held = {}
  local found = _redis_pcall("XPENDING", queue .. "stream", group, page[1][1], page[#page][1], #page)
  for _, entry in _ipairs(found.err and {} or found) do
    held[entry[1]] = true
  end
  return held
end

--- Remove the jobs of all entries that no consumer holds; returns how many.
function draining.stream(queue, group, limit)
  local entry_ids, job_ids = {}, {}
  local function take(entry_id, job_id)
    entry_ids[#entry_ids + 1] = entry_id
    if job_id and not stream.is_stray(queue, job_id, entry_id) then
      job_ids[#job_ids + 1] = job_id
    end
  end
  stream.pages(queue .. "stream", _math_min(limit or PAGE, PAGE), function(page)
    local held = pending(queue, group, page)
    for _, entry in _ipairs(page) do
      if #entry_ids == limit then
        return true
      elseif not held[entry[1]] then
        take(entry[1], stream.field(entry[2], "jobId"))
      end
    end
    return #entry_ids == limit
  end)
  for first = 1, #entry_ids, PAGE do
    _redis_call("XDEL", queue .. "stream", _unpack(entry_ids, first, _math_min(first + PAGE - 1, #entry_ids)))
  end
  remove(queue, job_ids)
  return #job_ids
end

--- Remove scheduled jobs, those first that are due first; returns how many members there were.
function draining.scheduled(queue, limit)
  local members = _redis_call("ZRANGE", queue .. "scheduled", 0, (limit or 0) - 1)
  purge.members(queue .. "scheduled", members)
  remove(queue, members)
  return #members
end

--- Remove jobs that wait in shares, in their turns; returns how many.
function draining.shares(queue, limit)
  local removed = 0
  repeat
    local job_ids = shares.take(queue, (limit or PAGE) - (limit and removed or 0))
    remove(queue, job_ids)
    removed = removed + #job_ids
  until not job_ids[1] or removed == limit
  return removed
end

--- Remove jobs of a list, those first that would start first; returns how many.
function draining.list(queue, key, limit)
  local job_ids = _redis_call("LRANGE", key, limit and -limit or 0, -1)
  _redis_call("LTRIM", key, 0, -1 - #job_ids)
  remove(queue, job_ids)
  return #job_ids
end

return draining
end)()

modules.retry = (function()
--- What follows a failed attempt: another one, or the end.

local active = require("active")
local events = require("events")
local failure = require("failure")
local numbers = require("numbers")
local placement = require("placement")
local record = require("record")
local release = require("release")
local retention = require("retention")
local stream = require("stream")

local retry = {}

local SUBSCRIPTION_TTL_S = 86400
local PAGE = 1000

--- Count the attempt; returns how many there were, in a broadcast of this consumer group.
local function count(queue, attempt)
  local key = queue .. "job:" .. attempt.job_id
  if not attempt.broadcast then
    return numbers.count(key, "attemptsMade", 1)
  end
  key = key .. ":sub:" .. attempt.group
  local attempts = numbers.count(key, "a", 1)
  _redis_call("EXPIRE", key, SUBSCRIPTION_TTL_S)
  return attempts
end

--- Schedule the next attempt.
local function schedule(queue, attempt, job, attempts)
  local job_id, now, reason = attempt.job_id, attempt.now_ms, attempt.failed_reason
  local key = queue .. "job:" .. job_id
  local opts = _redis_call("HGET", key, "opts")
  if opts and opts:find('"fallbacks"', 1, true) then
    numbers.count(key, "fallbackIndex", 1)
  end
  local member = attempt.broadcast and job_id .. "||" .. attempt.group or job_id
  placement.later(queue, member, job, now + attempt.backoff_ms)
  _redis_call("HSET", key, "state", "delayed", "failedReason", reason, "processedOn", now)
  active.pause_slot(queue, job, now)
  events.emit(
    queue, "retrying", job_id,
    "failedReason", reason, "attemptsMade", attempts, "delay", attempt.backoff_ms
  )
end

--- Fail the job for good.
function retry.give_up(queue, attempt, job)
  local job_id, now, reason = attempt.job_id, attempt.now_ms, attempt.failed_reason
  failure.record(queue, job_id, reason, now, "processedOn", now)
  release.forfeit(queue, job, now)
  failure.announce(queue, job_id, reason, now, job.processedOn)
  retention.apply(queue, "failed", { job_id }, now, attempt)
end

--- Count a failed attempt; returns whether another is scheduled. After the last, give up.
function retry.again(queue, attempt, job)
  local attempts = count(queue, attempt)
  if attempt.max_attempts > 0 and attempts < attempt.max_attempts then
    schedule(queue, attempt, job, attempts)
    return true
  end
  return false
end

--- Schedule a job that is off the failed ones, with all its attempts.
function retry.afresh(queue, job_id, job, now)
  if job.revoked == "1" then
    stream.disown_left(queue, job_id)
  end
  placement.later(queue, job_id, job, now)
  _redis_call(
    "HSET", queue .. "job:" .. job_id,
    "state", "delayed", "attemptsMade", 0, "failedReason", "", "finishedOn", ""
  )
  _redis_call("HDEL", queue .. "job:" .. job_id, "failureKind", "traceback")
end

--- Schedule up to `most` failed jobs again, oldest first, or all when it is 0; returns how many.
function retry.failed(queue, most, now)
  local retried = 0
  while most <= 0 or retried < most do
    local wanted = most > 0 and _math_min(most - retried, PAGE) or PAGE
    local popped = _redis_call("ZPOPMIN", queue .. "failed", wanted)
    if not popped[1] then
      break
    end
    for index = 1, #popped, 2 do
      local job_id = popped[index]
      local job = record.load(queue, job_id)
      if job then
        retry.afresh(queue, job_id, job, now)
        retried = retried + 1
      end
    end
  end
  return retried
end

return retry
end)()

modules.deferral = (function()
--- Defers an active job, which runs again later: at a time, when its children have completed, or when it is signaled.
--- The caller takes it off its worker.

local active = require("active")
local events = require("events")
local flows = require("flows")
local placement = require("placement")

local deferral = {}

local NO_DEADLINE = 9999999999999

--- Defer a job until a time, without counting an attempt. Unless empty, `new_data` replaces its payload.
function deferral.until_due(queue, job_id, job, due, now, new_data)
  local key, delay = queue .. "job:" .. job_id, _math_max(due - now, 0)
  placement.later(queue, job_id, job, now + delay)
  _redis_call("HSET", key, "state", "delayed", "delay", delay)
  if new_data ~= "" then
    _redis_call("HSET", key, "data", new_data)
  end
  active.pause_slot(queue, job, now)
  events.emit(queue, "delay-changed", job_id, "delay", delay)
end

--- Let a job wait for its children; false when all have completed, and it is ready again.
function deferral.for_children(queue, job_id, job, now)
  active.pause_slot(queue, job, now)
  local children = _redis_call("SCARD", queue .. "deps:" .. job_id)
  if children > 0 and (_tonumber(job.depsCompleted) or 0) >= children then
    flows.resume(queue, job_id, job.name, job.share)
    return false
  end
  _redis_call("HSET", queue .. "job:" .. job_id, "state", "waiting-children")
  events.emit(queue, "waiting-children", job_id)
  return true
end

--- Suspend a job until it is signalled, at most `timeout` ms; 0 is forever.
function deferral.for_signal(queue, job_id, job, now, reason, timeout)
  local key = queue .. "job:" .. job_id
  _redis_call("HSET", key, "state", "suspended", "suspendedAt", now)
  if reason ~= "" then
    _redis_call("HSET", key, "suspendReason", reason)
  end
  if timeout > 0 then
    _redis_call("HSET", key, "suspendTimeout", timeout)
  end
  _redis_call("ZADD", queue .. "suspended", timeout > 0 and now + timeout or NO_DEADLINE, job_id)
  active.pause_slot(queue, job, now)
  events.emit(queue, "suspended", job_id)
end

return deferral
end)()

modules.promotion = (function()
--- Makes delayed and prioritized jobs ready when their time has come.

local events = require("events")
local failure = require("failure")
local groups = require("groups")
local placement = require("placement")
local record = require("record")
local release = require("release")
local scheduled = require("scheduled")
local stream = require("stream")

local promotion = {}

local MOST_GROUPS = 100
-- A worker may have started a job that was set aside behind its back; it does not run a second time.
local UNDER_WAY = { active = true, completed = true, failed = true }

--- Jobs that are about to enter the priority list: many of one priority take one place.
local function flush(queue, enlisted)
  placement.enlist(queue, enlisted.ids, enlisted.priority)
  enlisted.ids, enlisted.priority = {}, nil
end

local function enter(queue, enlisted, job_id, priority)
  if enlisted.priority ~= priority then
    flush(queue, enlisted)
  end
  enlisted.ids[#enlisted.ids + 1], enlisted.priority = job_id, priority
end

--- Promote one member: a job id, or `id||group` for the retry of one consumer group of a broadcast.
local function promote(queue, member, now, enlisted)
  local job_id, retry_group = member:match("^(.-)||(.*)$")
  job_id = job_id or member
  local job = record.load(queue, job_id)
  if not job or (UNDER_WAY[job.state] and not retry_group) then
    return
  elseif failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
    return
  end
  _redis_call("HSET", queue .. "job:" .. job_id, "state", "waiting")
  if retry_group then
    stream.append(queue, job_id, job.name, "retryGroup", retry_group)
  elseif placement.is_enlisted(job) then
    enter(queue, enlisted, job_id, record.priority(job))
  else
    placement.ready(queue, job_id, job)
  end
  events.emit(queue, "promoted", job_id)
end

--- Promote what is due in every priority band, at most `most` members; returns how many that were. With `keeps_short` jobs
--- for which the priority list has no room stay where they are.
function promotion.due(queue, now, most, keeps_short)
  local key = queue .. "scheduled"
  local consumed, enlisted = 0, { ids = {} }
  local band = scheduled.first(key)
  while band and consumed < most do
    local from, to = scheduled.bound(band, 0), scheduled.bound(band, now)
    local room = most - consumed
    if keeps_short and band > 0 then
      room = _math_min(room, placement.room(queue, band))
    end
    if room == 0 then
      break
    end
    local members = _redis_call("ZRANGE", key, from, to, "BYSCORE", "LIMIT", 0, room)
    if members[1] then
      _redis_call("ZREM", key, _unpack(members))
    end
    for _, member in _ipairs(members) do
      promote(queue, member, now, enlisted)
    end
    flush(queue, enlisted)
    consumed = consumed + #members
    band = scheduled.first(key, band + 1)
  end
  return consumed
end

--- Promote jobs of groups whose rate limit has passed; returns how many became ready. After `most` the remaining groups
--- stay due.
function promotion.limited(queue, now, most)
  local key, moved = queue .. "ratelimited", 0
  local now_text = _string_format("%.0f", now)
  for _, name in _ipairs(_redis_call("ZRANGE", key, 0, now_text, "BYSCORE", "LIMIT", 0, MOST_GROUPS)) do
    if most and moved >= most then
      break
    end
    _redis_call("ZREM", key, name)
    moved = moved + release.promote(queue, name, groups.load(queue, name), now)
  end
  return moved
end

--- When the next delayed job or limited group is due, possibly past; -1 when nothing waits. With `now`, jobs of `queue` that
--- are due and have no room in the priority list don't count: who takes jobs from it looks for them.
function promotion.next_due(scheduled_key, ratelimited_key, queue, now)
  local earliest
  local band, due = scheduled.first(scheduled_key)
  while band do
    if now and band > 0 and due <= now and placement.room(queue, band) == 0 then
      due = scheduled.first_after(scheduled_key, band, now)
    end
    earliest = _math_min(earliest or math.huge, due or math.huge)
    band, due = scheduled.first(scheduled_key, band + 1)
  end
  local group = _redis_call("ZRANGE", ratelimited_key, 0, 0, "WITHSCORES")
  if group[2] then
    earliest = _math_min(earliest or math.huge, _tonumber(group[2]))
  end
  return earliest ~= math.huge and earliest or -1
end

return promotion
end)()

modules.group_limit = (function()
--- Holds a group back for a while at run time.

local events = require("events")
local failure = require("failure")
local groups = require("groups")
local guarded = require("guarded")
local record = require("record")

local group_limit = { REASON = "group rate limited" }

--- The rank of a held job among the parked: before all others in its sequence, or behind them.
local function score_of(queue, name, job_id, job, position)
  local seq = record.sequence(job)
  if position ~= "back" then
    return seq
  end
  local last = guarded.call("ZRANGE", groups.parked_key(queue, name), 0, 0, "REV", "WITHSCORES")
  if last[2] then
    return _tonumber(last[2]) + 1
  end
  return seq > 0 and seq or _tonumber(job_id) or 0
end

--- Park the active job that reached the limit at the `front` or the `back` of its group, or fail it (`fail`).
--- The caller takes it off its worker.
function group_limit.put_down(queue, job_id, job, now, fate)
  local name = job.groupKey
  local slots = groups.load(queue, name).active
  if slots > 0 then
    groups.write(queue, name, "active", slots - 1)
  end
  if fate == "fail" then
    failure.record(queue, job_id, group_limit.REASON, now, "processedOn", job.processedOn or now)
    failure.announce(queue, job_id, group_limit.REASON, now, job.processedOn)
  else
    groups.park(queue, name, job_id, score_of(queue, name, job_id, job, fate))
  end
end

--- Hold a group back; returns until when. `extend` says whether an end already set stays when it is later.
function group_limit.group(queue, name, job_id, duration, now, extend)
  local resume_at = now + duration
  if extend == "max" then
    local standing = _tonumber(_redis_call("ZSCORE", queue .. "ratelimited", name)) or 0
    resume_at = _math_max(resume_at, standing)
  end
  groups.hold_until(queue, name, resume_at)
  groups.note_hold(queue, name, resume_at)
  events.emit(
    queue, "group-rate-limited", job_id,
    "groupKey", name, "duration", duration, "resumeAt", resume_at
  )
  return resume_at
end

return group_limit
end)()

modules.stalled = (function()
--- What happens to an active job whose lease ran out.

local events = require("events")
local failure = require("failure")
local record = require("record")
local numbers = require("numbers")
local release = require("release")

local stalled = { REASON = "job stalled more than maxStalledCount" }

local SHORTEST_MS, LONGEST_MS = 1000, 86400000

--- The lease the job's own options name; nil when they name none.
local function own_lease(queue, job_id)
  local opts = _redis_call("HGET", queue .. "job:" .. job_id, "opts")
  if not opts or not opts:find('"lockDuration"', 1, true) then
    return nil
  end
  local readable, decoded = _pcall(_cjson_decode, opts)
  local lease = readable and _type(decoded) == "table" and _tonumber(decoded.lockDuration)
  return lease and lease >= SHORTEST_MS and lease <= LONGEST_MS and lease or nil
end

--- Whether a job without its own lease has been idle for as long as the sweep allows.
function stalled.has_passed(since, sweep)
  return sweep.now_ms - since >= (sweep.lock_duration_ms > 0 and sweep.lock_duration_ms or sweep.min_idle_ms)
end

--- Whether the job, whose lease was renewed before, has not been renewed for the allowed time.
function stalled.is_silent(queue, job_id, job, sweep)
  local last, lease = numbers.finite(job.lastActive) or 0, own_lease(queue, job_id)
  if lease then
    return sweep.now_ms - last >= lease
  end
  return stalled.has_passed(last, sweep)
end

--- Count one stall. Returns true when it was one too many and the job has failed.
function stalled.strike(queue, job_id, job, most, now)
  local key = queue .. "job:" .. job_id
  if numbers.count(key, "stalledCount", 1) <= most then
    events.emit(queue, "stalled", job_id)
    return false
  end
  failure.record(queue, job_id, stalled.REASON, now, "failureKind", "stalled")
  release.forfeit(queue, job, now)
  failure.announce(queue, job_id, stalled.REASON, now, job.processedOn)
  return true
end

--- The job runs again from the beginning. One of a group without turns takes a new slot then, so it gives its own back.
function stalled.reset(queue, job_id, job, now)
  local key = queue .. "job:" .. job_id
  _redis_call("HSET", key, "state", "waiting")
  _redis_call("HDEL", key, "processedOn", "lastActive")
  if job.state == "active" and record.sequence(job) <= 0 then
    release.slot(queue, job.groupKey, now)
  end
end

return stalled
end)()

modules.reclaim = (function()
--- Takes stalled jobs back. `sweep` has now_ms, min_idle_ms, lock_duration_ms, most_stalls,
--- and for the stream also group and broadcast. It may have `limit`, how many entries to inspect and list jobs to take
--- back, and `notify(job_id, job, has_failed)`, called for each job that is ready again or failed by a stall too many.

local failure = require("failure")
local lists = require("lists")
local placement = require("placement")
local record = require("record")
local release = require("release")
local stalled = require("stalled")
local stream = require("stream")

local reclaim = {}

local MOST_PAGES, PAGE = 100, 100

local function notify(sweep, job_id, job, has_failed)
  if sweep.notify then
    sweep.notify(job_id, job, has_failed)
  end
end

--- Inspect one idle entry: drop it, leave it, or run its job again. Returns whether it was left.
local function entry(queue, entry_id, job_id, sweep)
  local now = sweep.now_ms
  local job = job_id and record.load(queue, job_id)
  if job and stream.is_stray(queue, job_id, entry_id) then
    job = nil
  end
  if job and failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
  elseif job then
    if job.lastActive and not stalled.is_silent(queue, job_id, job, sweep) then
      return true
    end
    local failed = stalled.strike(queue, job_id, job, sweep.most_stalls, now)
    if sweep.broadcast and not failed then
      _redis_call("HSET", queue .. "job:" .. job_id, "state", "active")
      return false
    elseif not failed then
      stalled.reset(queue, job_id, job, now)
      stream.push(queue, job_id, job.name)
    end
    notify(sweep, job_id, job, failed)
  end
  stream.settle(queue, sweep.group, entry_id, sweep.broadcast)
  return false
end

--- Return the consumers of idle entries from the cursor on, by entry.
local function owners(key, cursor, count, sweep)
  local owner = {}
  for _, pending in _ipairs(_redis_call("XPENDING", key, sweep.group, "IDLE", sweep.min_idle_ms, cursor, "+", count)) do
    owner[pending[1]] = pending[2]
  end
  return owner
end

--- Claim a page of idle entries and inspect each. An entry whose job is still running is returned to its consumer: a worker
--- considers entries that it finds among its own as lost, and starts them. Returns the next cursor, and how many were seen.
local function look_at_page(queue, key, consumer, cursor, count, sweep)
  local owner = owners(key, cursor, count, sweep)
  local page = _redis_call("XAUTOCLAIM", key, sweep.group, consumer, sweep.min_idle_ms, cursor, "COUNT", count)
  local seen = 0
  for _, claimed in _ipairs(page[2]) do
    if claimed then
      local entry_id = claimed[1]
      local whose = owner[entry_id] or consumer
      if entry(queue, entry_id, stream.field(claimed[2], "jobId"), sweep) and whose ~= consumer then
        _redis_call("XCLAIM", key, sweep.group, whose, 0, entry_id, "JUSTID")
      end
      seen = seen + 1
    end
  end
  return page[1], seen
end

--- Inspect entries idle for too long, page by page; returns how many, and whether there may be more.
function reclaim.entries(queue, consumer, sweep)
  local key, cursor, seen = queue .. "stream", "0-0", 0
  if not _redis_call("XPENDING", key, sweep.group, "IDLE", sweep.min_idle_ms, "-", "+", 1)[1] then
    return 0, false
  end
  local limit = sweep.limit or MOST_PAGES * PAGE
  for _ = 1, MOST_PAGES do
    local looked
    cursor, looked = look_at_page(queue, key, consumer, cursor, _math_min(limit - seen, PAGE), sweep)
    seen = seen + looked
    if cursor == "0-0" or seen == limit then
      break
    end
  end
  return seen, cursor ~= "0-0"
end

--- Inspect one active list job; returns whether it was taken back.
local function list_job(queue, found, sweep)
  local job_id, job, now = found.id, found.job, sweep.now_ms
  if not job.lastActive or not stalled.is_silent(queue, job_id, job, sweep) then
    return false
  end
  lists.leave(queue, job_id)
  if failure.has_expired(job, now) then
    release.expire(queue, job_id, job, now)
    return true
  end
  _redis_call("HSET", queue .. "job:" .. job_id, "lastActive", now)
  local failed = stalled.strike(queue, job_id, job, sweep.most_stalls, now)
  if not failed then
    stalled.reset(queue, job_id, job, now)
    placement.ready(queue, job_id, job)
  end
  notify(sweep, job_id, job, failed)
  return true
end

--- Inspect one job that was popped, but is not active; returns whether it was taken back.
local function taken_job(queue, found, sweep)
  if found.is_new then
    lists.seen_taken(queue, found.id, sweep.now_ms)
  elseif stalled.has_passed(found.since, sweep) then
    placement.back(queue, found.id, found.job)
    notify(sweep, found.id, found.job, false)
    return true
  end
  return false
end

--- Take back stalled list jobs, and those popped by one that died before it activated them; returns
--- how many, and whether there may be more.
function reclaim.list_jobs(queue, sweep)
  if lists.is_idle(queue) then
    return 0, false
  end
  local limit, reclaimed = sweep.limit or math.huge, 0
  local active, taken = lists.all(queue)
  for index = 1, #active + #taken do
    if reclaimed == limit then
      return reclaimed, true
    end
    local found, take_back = active[index], list_job
    if not found then
      found, take_back = taken[index - #active], taken_job
    end
    reclaimed = reclaimed + (take_back(queue, found, sweep) and 1 or 0)
  end
  return reclaimed, false
end

return reclaim
end)()

modules.budgets = (function()
--- What a flow may spend: running sums and their limits, all on one hash.

local budgets = {}

local function decoded(text)
  local readable, value = _pcall(_cjson_decode, text)
  return readable and _type(value) == "table" and value or {}
end

--- Add one kind of usage: to the total, and by category. Text is sent, which keeps the decimals as they were written.
local function add(key, field, total, by_category)
  if total > 0 then
    _redis_call("HINCRBYFLOAT", key, field, _tostring(total))
  end
  for category, amount in _pairs(decoded(by_category)) do
    local used = _tonumber(amount) or 0
    if used > 0 then
      _redis_call("HINCRBYFLOAT", key, field .. ":" .. category, _tostring(used))
    end
  end
end

local function is_over(key, field, limit)
  local most = _tonumber(limit) or 0
  return most > 0 and (_tonumber(_redis_call("HGET", key, field)) or 0) > most
end

local function any_over(key, field, limits)
  for category, limit in _pairs(decoded(limits)) do
    if is_over(key, field .. ":" .. category, limit) then
      return true
    end
  end
  return false
end

function budgets.record(key, usage)
  add(key, "usedTokens", usage.weighted_tokens, usage.tokens)
  add(key, "usedCost", usage.total_cost, usage.costs)
end

--- Whether a limit is passed, of the budget itself or of those given by category.
function budgets.exceeded(key, max_tokens, max_costs)
  local limits = _redis_call("HMGET", key, "maxTotalTokens", "maxTotalCost")
  return is_over(key, "usedTokens", limits[1])
    or is_over(key, "usedCost", limits[2])
    or any_over(key, "usedTokens", max_tokens)
    or any_over(key, "usedCost", max_costs)
end

return budgets
end)()

modules.removal = (function()
--- Removes one job from wherever it is.

local guarded = require("guarded")
local lists = require("lists")
local purge = require("purge")
local record = require("record")
local release = require("release")
local withdrawal = require("withdrawal")

local removal = {}

--- Remove a job and all its keys, except its entry on the stream; returns its record, or nil.
function removal.remove(queue, job_id)
  local job = record.load(queue, job_id)
  if not job then
    return nil
  end
  if job.state == "active" and lists.holds(job) then
    lists.leave(queue, job_id)
  elseif job.state == "waiting" then
    withdrawal.remove(queue, job_id, job)
  elseif job.state == "group-waiting" then
    guarded.call("ZREM", queue .. "groupq:" .. (job.groupKey or ""), job_id)
  end
  for _, set in _ipairs({ "scheduled", "completed", "failed", "suspended" }) do
    _redis_call("ZREM", queue .. set, job_id)
  end
  release.forfeit(queue, job, 0)
  purge.jobs(queue, { job_id })
  return job
end

return removal
end)()

modules.revocation = (function()
--- The one way in which a job is cancelled.

local events = require("events")
local guarded = require("guarded")
local record = require("record")
local release = require("release")
local stream = require("stream")
local withdrawal = require("withdrawal")

local revocation = {}

local waits = { waiting = true, delayed = true, prioritized = true, ["group-waiting"] = true }

--- Fail a job that has not started, else flag it; returns the reply of glidemq_revoke.
function revocation.revoke(queue, job_id, now_ms, group)
  local job = record.load(queue, job_id)
  if not job then
    return "not_found"
  end
  _redis_call("HSET", queue .. "job:" .. job_id, "revoked", 1)
  if not waits[job.state] then
    events.emit(queue, "revoked", job_id)
    return "flagged"
  end
  if job.state == "group-waiting" then
    guarded.call("ZREM", queue .. "groupq:" .. job.groupKey, job_id)
  else
    local is_elsewhere = _redis_call("ZREM", queue .. "scheduled", job_id) == 1
      or withdrawal.withdraw(queue, job_id, job)
    if not is_elsewhere and not stream.remove(queue, group, job_id, job) then
      stream.disown(queue, job_id)
    end
  end
  release.revoke(queue, job_id, job, now_ms)
  return "revoked"
end

return revocation
end)()

modules.search = (function()
--- Finds jobs by their name.

local stream = require("stream")

local search = {}

local PAGE = 1000

local function walk_set(key, visit)
  local first = 0
  while true do
    local page = _redis_call("ZRANGE", key, first, first + PAGE - 1)
    for _, job_id in _ipairs(page) do
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
    if #found < limit and job_id and _redis_call("HGET", queue .. "job:" .. job_id, "name") == name then
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
end)()

modules.suspension = (function()
--- Ends suspensions whose deadline has passed.

local failure = require("failure")
local record = require("record")
local release = require("release")

local suspension = {}

local MOST_JOBS, REASON = 100, "Suspend timeout exceeded"

--- Fail suspended jobs whose timeout has expired; returns how many, at most 100.
function suspension.sweep(queue, now)
  local failed, key = 0, queue .. "suspended"
  local due = _redis_call("ZRANGE", key, 0, _string_format("%.0f", now), "BYSCORE", "LIMIT", 0, MOST_JOBS)
  for _, job_id in _ipairs(due) do
    local job = record.load(queue, job_id)
    _redis_call("ZREM", key, job_id)
    if job and job.state == "suspended" then
      failure.record(queue, job_id, REASON, now, "processedOn", now)
      release.forfeit(queue, job, now)
      failure.announce(queue, job_id, REASON, now, job.processedOn)
      failed = failed + 1
    end
  end
  return failed
end

return suspension
end)()

do -- addFlow
  local creation = require("creation")
  local events = require("events")
  local graph = require("graph")
  redis.register_function("glidemq_addFlow", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("addFlow", "events")
    end
    local parent_name = ARGV[1] or missing("addFlow", "parent_name")
    local parent_data = ARGV[2] or missing("addFlow", "parent_data")
    local parent_opts = ARGV[3] or missing("addFlow", "parent_opts")
    local timestamp_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("addFlow", "timestamp_ms")
    local parent_delay_ms = ARGV[5] == "0" and 0 or numeric(ARGV[5]) or 0
    local parent_priority = ARGV[6] == "0" and 0 or numeric(ARGV[6]) or 0
    local parent_max_attempts = ARGV[7] == "0" and 0 or numeric(ARGV[7]) or 0
    local child_count = ARGV[8] == "0" and 0 or numeric(ARGV[8]) or missing("addFlow", "child_count")
    local parent_custom_id = ARGV[9] or ""
    local children = {}
    for index = 1, child_count do
      local key = 4 + (index - 1) * 4
      local arg = 9 + (index - 1) * 9
      children[index] = {
        id_key = KEYS[key + 1] or missing("addFlow", "id"),
        stream_key = KEYS[key + 2] or missing("addFlow", "stream"),
        scheduled_key = KEYS[key + 3] or missing("addFlow", "scheduled"),
        events_key = KEYS[key + 4] or missing("addFlow", "events"),
        name = ARGV[arg + 1] or missing("addFlow", "name"),
        data = ARGV[arg + 2] or missing("addFlow", "data"),
        opts = ARGV[arg + 3] or missing("addFlow", "opts"),
        delay_ms = ARGV[arg + 4] == "0" and 0 or numeric(ARGV[arg + 4]) or 0,
        priority = ARGV[arg + 5] == "0" and 0 or numeric(ARGV[arg + 5]) or 0,
        max_attempts = ARGV[arg + 6] == "0" and 0 or numeric(ARGV[arg + 6]) or 0,
        queue_prefix = ARGV[arg + 7] or missing("addFlow", "queue_prefix"),
        parent_queue = ARGV[arg + 8] or missing("addFlow", "parent_queue"),
        custom_id = ARGV[arg + 9] or "",
      }
    end
    local extra_dep_count = ARGV[10 + 9 * #children] == "0" and 0 or numeric(ARGV[10 + 9 * #children]) or missing("addFlow", "extra_dep_count")
    local extra_deps = {}
    for index = 1, extra_dep_count do
      extra_deps[index] = ARGV[10 + 9 * #children + index] or missing("addFlow", "extra_deps")
    end
    local queue = KEYS[1]:sub(1, -3)
    local parent = graph.parent({
      job_name = parent_name,
      data = parent_data,
      opts = parent_opts,
      timestamp_ms = timestamp_ms,
      delay_ms = parent_delay_ms,
      priority = parent_priority,
      max_attempts = parent_max_attempts,
      custom_id = parent_custom_id,
    })
    for _, child in _ipairs(children) do
      graph.child(child, timestamp_ms)
    end

    -- All that can be wrong is found out before the first record is written.
    local problem, chosen = graph.problem(queue, parent, children)
    if problem then
      return problem
    end
    local job_ids, no_ids = graph.take_ids(queue, parent, children, chosen)
    if not job_ids then
      return no_ids
    end
    local parent_id = job_ids[1]

    creation.write(queue, parent_id, parent, "waiting-children")
    local deps_key = queue .. "deps:" .. parent_id
    for index, child in _ipairs(children) do
      local child_id = job_ids[index + 1]
      child.parent_id = parent_id
      creation.write(child.queue, child_id, child)
      _redis_call("SADD", deps_key, child.queue .. child_id)
      events.emit(child.queue, "added", child_id, "name", child.job_name)
    end
    for _, member in _ipairs(extra_deps) do
      _redis_call("SADD", deps_key, member)
    end
    events.emit(queue, "added", parent_id, "name", parent.job_name)
    return _cjson_encode(job_ids)
  end)
end

do -- addJob
  local creation = require("creation")
  local events = require("events")
  local job = {}
  redis.register_function("glidemq_addJob", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("addJob", "events")
    end
    local parent_deps_key = KEYS[5]
    job.job_name = ARGV[1] or missing("addJob", "job_name")
    job.data = ARGV[2] or missing("addJob", "data")
    job.opts = ARGV[3] or missing("addJob", "opts")
    job.timestamp_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("addJob", "timestamp_ms")
    job.delay_ms = ARGV[5] == "0" and 0 or numeric(ARGV[5]) or 0
    job.priority = ARGV[6] == "0" and 0 or numeric(ARGV[6]) or 0
    job.parent_id = ARGV[7] or ""
    job.max_attempts = ARGV[8] == "0" and 0 or numeric(ARGV[8]) or 0
    job.ordering_key = ARGV[9] or ""
    job.group_concurrency = ARGV[10] == "0" and 0 or numeric(ARGV[10]) or 0
    job.group_rate_max = ARGV[11] == "0" and 0 or numeric(ARGV[11]) or 0
    job.group_rate_duration_ms = ARGV[12] == "0" and 0 or numeric(ARGV[12]) or 0
    job.tb_capacity = ARGV[13] == "0" and 0 or numeric(ARGV[13]) or 0
    job.tb_refill_rate = ARGV[14] == "0" and 0 or numeric(ARGV[14]) or 0
    job.cost = ARGV[15] == "0" and 0 or numeric(ARGV[15]) or 0
    job.ttl_ms = ARGV[16] == "0" and 0 or numeric(ARGV[16]) or 0
    job.custom_id = ARGV[17] or ""
    job.lifo = ARGV[18] == "1"
    job.parent_queue = ARGV[19] or ""
    job.scheduler_name = ARGV[20] or ""
    local skip_events = ARGV[21] == "1"
    local queue = queue_of("addJob", KEYS[1], ":id") .. ":"
    local problem = creation.problem(queue, job)
    if problem then
      return problem
    end
    local job_id, exhausted = creation.job(queue, job, parent_deps_key)
    if not job_id then
      return exhausted
    end
    if not skip_events then
      events.emit(queue, "added", job_id, "name", job.job_name)
    end
    return job_id
  end)
end

do -- changeDelay
  local reschedule = require("reschedule")
  redis.register_function("glidemq_changeDelay", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("changeDelay", "events")
    end
    local job_id = ARGV[1] or ""
    local delay_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2])
    local now_ms = ARGV[3] == "0" and 0 or numeric(ARGV[3])
    local group = ARGV[4] or ""
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    return reschedule.delay(queue, job_id, group, delay_ms, now_ms)
  end)
end

do -- changePriority
  local reschedule = require("reschedule")
  redis.register_function("glidemq_changePriority", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("changePriority", "events")
    end
    local job_id = ARGV[1] or ""
    local priority = ARGV[2] == "0" and 0 or numeric(ARGV[2])
    local group = ARGV[3] or ""
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    return reschedule.priority(queue, job_id, group, priority)
  end)
end

do -- checkBudget
  redis.register_function("glidemq_checkBudget", function(KEYS)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("checkBudget", "budget")
    end
    local budget_key = KEYS[1]
    local exceeded = _redis_call("HGET", budget_key, "exceeded")
    if exceeded == "1" then
      return "exceeded"
    elseif not exceeded and _redis_call("EXISTS", budget_key) == 0 then
      return "no_budget"
    end
    return "ok"
  end)
end

do -- checkConcurrency
  local concurrency = require("concurrency")
  redis.register_function("glidemq_checkConcurrency", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 3 then
      missing("checkConcurrency", "list_active")
    end
    local meta_key = KEYS[1]
    local stream_key = KEYS[2]
    local group = ARGV[1] or missing("checkConcurrency", "group")
    local queue = KEYS[1]:sub(1, -5)
    return concurrency.room(meta_key, stream_key, queue, group) or -1
  end)
end

do -- clean
  local purge = require("purge")
  redis.register_function("glidemq_clean", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 3 then
      missing("clean", "id")
    end
    local finished_key = KEYS[1]
    local cutoff_ms = ARGV[1] == "0" and 0 or numeric(ARGV[1])
    local limit = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or 0
    local queue = KEYS[3]:sub(1, -3)
    return purge.finished(queue, finished_key, cutoff_ms, limit)
  end)
end

do -- complete
  local completion = require("completion")
  local record = require("record")
  local done = {}
  redis.register_function("glidemq_complete", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 5 then
      missing("complete", "metrics")
    end
    local parent_job_key = KEYS[7]
    done.job_id = ARGV[1] or missing("complete", "job_id")
    done.entry_id = ARGV[2] or missing("complete", "entry_id")
    done.returnvalue = ARGV[3] or missing("complete", "returnvalue")
    done.now_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("complete", "now_ms")
    done.group = ARGV[5] or missing("complete", "group")
    done.remove_mode = ARGV[6] or "0"
    done.remove_count = ARGV[7] == "0" and 0 or numeric(ARGV[7]) or 0
    done.remove_age_s = ARGV[8] == "0" and 0 or numeric(ARGV[8]) or 0
    done.deps_member = ARGV[9] or ""
    done.parent_id = ARGV[10] or ""
    done.broadcast = ARGV[11] == "1"
    local queue = queue_of("complete", KEYS[4], "job:" .. done.job_id)
    local known = record.load(queue, done.job_id) or {}
    completion.settle(queue, done, known, parent_job_key)
    return 1
  end)
end

do -- completeAndFetchNext
  local completion = require("completion")
  local fetch = require("fetch")
  local done = {}
  redis.register_function("glidemq_completeAndFetchNext", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 5 then
      missing("completeAndFetchNext", "metrics")
    end
    local parent_job_key = KEYS[7]
    done.job_id = ARGV[1] or missing("completeAndFetchNext", "job_id")
    done.entry_id = ARGV[2] or missing("completeAndFetchNext", "entry_id")
    done.returnvalue = ARGV[3] or missing("completeAndFetchNext", "returnvalue")
    done.now_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("completeAndFetchNext", "now_ms")
    done.group = ARGV[5] or missing("completeAndFetchNext", "group")
    done.consumer = ARGV[6] or missing("completeAndFetchNext", "consumer")
    done.remove_mode = ARGV[7] or "0"
    done.remove_count = ARGV[8] == "0" and 0 or numeric(ARGV[8]) or 0
    done.remove_age_s = ARGV[9] == "0" and 0 or numeric(ARGV[9]) or 0
    done.deps_member = ARGV[10] or ""
    done.parent_id = ARGV[11] or ""
    done.ordering_key_hint = ARGV[12] or ""
    done.ordering_seq_hint = ARGV[13] or ""
    done.group_key_hint = ARGV[14] or ""
    done.broadcast = ARGV[15] == "1"
    done.processed_on_hint = ARGV[16] or ""
    done.has_parents = ARGV[17] or ""
    done.skip_events = ARGV[18] == "1"
    done.skip_metrics = ARGV[19] == "1"
    local queue = KEYS[4]:sub(1, -#done.job_id - 5)
    completion.settle(queue, done, completion.known(queue, done), parent_job_key)
    if done.broadcast then
      return { "NEXT_NONE", done.job_id }
    end
    return fetch.next(queue, done)
  end)
end

do -- completeChild
  local flows = require("flows")
  redis.register_function("glidemq_completeChild", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("completeChild", "parent_events")
    end
    local parent_deps_key = KEYS[1]
    local parent_job_key = KEYS[2]
    local deps_member = ARGV[1] or missing("completeChild", "deps_member")
    local parent_id = ARGV[2] or missing("completeChild", "parent_id")
    flows.notify(flows.queue_of(parent_job_key, parent_id), parent_id, deps_member)
    local done = _tonumber(_redis_call("HGET", parent_job_key, "depsCompleted")) or 0
    return _redis_call("SCARD", parent_deps_key) - done
  end)
end

do -- dedup
  local creation = require("creation")
  local dedup = require("dedup")
  local events = require("events")
  local job = {}
  redis.register_function("glidemq_dedup", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 5 then
      missing("dedup", "events")
    end
    local dedup_key = KEYS[1]
    local parent_deps_key = KEYS[6]
    local dedup_id = ARGV[1] or missing("dedup", "dedup_id")
    local dedup_ttl_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or 0
    local mode = ARGV[3] or missing("dedup", "mode")
    job.job_name = ARGV[4] or missing("dedup", "job_name")
    job.data = ARGV[5] or missing("dedup", "data")
    job.opts = ARGV[6] or missing("dedup", "opts")
    job.timestamp_ms = ARGV[7] == "0" and 0 or numeric(ARGV[7]) or missing("dedup", "timestamp_ms")
    job.delay_ms = ARGV[8] == "0" and 0 or numeric(ARGV[8]) or 0
    job.priority = ARGV[9] == "0" and 0 or numeric(ARGV[9]) or 0
    job.parent_id = ARGV[10] or ""
    job.max_attempts = ARGV[11] == "0" and 0 or numeric(ARGV[11]) or 0
    job.ordering_key = ARGV[12] or ""
    job.group_concurrency = ARGV[13] == "0" and 0 or numeric(ARGV[13]) or 0
    job.group_rate_max = ARGV[14] == "0" and 0 or numeric(ARGV[14]) or 0
    job.group_rate_duration_ms = ARGV[15] == "0" and 0 or numeric(ARGV[15]) or 0
    job.tb_capacity = ARGV[16] == "0" and 0 or numeric(ARGV[16]) or 0
    job.tb_refill_rate = ARGV[17] == "0" and 0 or numeric(ARGV[17]) or 0
    job.cost = ARGV[18] == "0" and 0 or numeric(ARGV[18]) or 0
    job.ttl_ms = ARGV[19] == "0" and 0 or numeric(ARGV[19]) or 0
    job.custom_id = ARGV[20] or ""
    job.lifo = ARGV[21] == "1"
    job.parent_queue = ARGV[22] or ""
    local skip_events = ARGV[23] == "1"
    local queue = KEYS[2]:sub(1, -3)
    local standing = dedup.standing(queue, dedup_key, dedup_id)
    if dedup.stands_in(standing, mode, job.timestamp_ms, dedup_ttl_ms) then
      return "skipped"
    end
    local replaced = dedup.is_replaced(standing, mode)
    local problem = creation.problem(queue, job, replaced and standing.id)
    if problem then
      return problem
    end
    if replaced then
      dedup.remove(queue, standing, job.timestamp_ms, skip_events)
    end
    local job_id, exhausted = creation.job(queue, job, parent_deps_key)
    if not job_id then
      return exhausted
    end
    _redis_call("HSET", dedup_key, dedup_id, job_id .. ":" .. _string_format("%.0f", job.timestamp_ms))
    if not skip_events then
      events.emit(queue, "added", job_id, "name", job.job_name)
    end
    return job_id
  end)
end

do -- deferActive
  local active = require("active")
  local record = require("record")
  local stream = require("stream")
  redis.register_function("glidemq_deferActive", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 3 then
      missing("deferActive", "list_active")
    end
    local job_key = KEYS[2]
    local job_id = ARGV[1] or missing("deferActive", "job_id")
    local entry_id = ARGV[2] or missing("deferActive", "entry_id")
    local group = ARGV[3] or missing("deferActive", "group")
    local broadcast = ARGV[4] == "1"
    local queue = KEYS[2]:sub(1, -#job_id - 5)
    local job = record.load(queue, job_id)
    active.leave(queue, job_id, entry_id, group, broadcast, not job)
    if not job then
      return 0
    end
    _redis_call("HSET", job_key, "state", "waiting")
    stream.push(queue, job_id, job.name)
    return 1
  end)
end

do -- drain
  local draining = require("draining")
  local events = require("events")
  redis.register_function("glidemq_drain", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 6 then
      missing("drain", "priority")
    end
    local lifo_key = KEYS[5]
    local priority_key = KEYS[6]
    local drain_delayed = ARGV[1] == "1"
    local group = ARGV[2] or "workers"
    local queue = KEYS[4]:sub(1, -3)
    local removed = draining.stream(queue, group)
    if drain_delayed then
      removed = removed + draining.scheduled(queue)
    end
    removed = removed + draining.list(queue, lifo_key) + draining.list(queue, priority_key) + draining.shares(queue)
    if removed > 0 then
      events.emit(queue, "drained", removed)
    end
    return removed
  end)
end

do -- fail
  local active = require("active")
  local record = require("record")
  local retry = require("retry")
  local attempt = {}
  redis.register_function("glidemq_fail", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 6 then
      missing("fail", "metrics")
    end
    attempt.job_id = ARGV[1] or missing("fail", "job_id")
    attempt.entry_id = ARGV[2] or missing("fail", "entry_id")
    attempt.failed_reason = ARGV[3] or missing("fail", "failed_reason")
    attempt.now_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("fail", "now_ms")
    attempt.max_attempts = ARGV[5] == "0" and 0 or numeric(ARGV[5]) or 0
    attempt.backoff_ms = ARGV[6] == "0" and 0 or numeric(ARGV[6]) or 0
    attempt.group = ARGV[7] or "workers"
    attempt.remove_mode = ARGV[8] or "0"
    attempt.remove_count = ARGV[9] == "0" and 0 or numeric(ARGV[9]) or 0
    attempt.remove_age_s = ARGV[10] == "0" and 0 or numeric(ARGV[10]) or 0
    attempt.broadcast = ARGV[11] == "1"
    local queue = queue_of("fail", KEYS[5], "job:" .. attempt.job_id)
    local job = record.load(queue, attempt.job_id)
    active.leave(queue, attempt.job_id, attempt.entry_id, attempt.group, attempt.broadcast, not job)
    -- A cancelled job has failed already; only the entry it left behind was still there.
    if not job or (job.revoked == "1" and record.has_ended(job)) then
      return "failed"
    end
    if retry.again(queue, attempt, job) then
      return "retrying"
    end
    retry.give_up(queue, attempt, job)
    return "failed"
  end)
end

do -- getActiveListJobIds
  local lists = require("lists")
  redis.register_function("glidemq_getActiveListJobIds", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("getActiveListJobIds", "id")
    end
    local start = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or 0
    local stop = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or -1
    local queue = KEYS[1]:sub(1, -3)
    local active = lists.all(queue)
    local last = stop < 0 and #active or stop + 1
    local job_ids = {}
    for index = start + 1, _math_min(last, #active) do
      job_ids[#job_ids + 1] = active[index].id
    end
    return job_ids
  end)
end

do -- healListActive
  local lists = require("lists")
  redis.register_function("glidemq_healListActive", function(KEYS)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("healListActive", "id")
    end
    local queue = KEYS[1]:sub(1, -3)
    return lists.heal(queue)
  end)
end

do -- moveActiveToDelayed
  local active = require("active")
  local deferral = require("deferral")
  redis.register_function("glidemq_moveActiveToDelayed", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("moveActiveToDelayed", "events")
    end
    local job_id = ARGV[1] or missing("moveActiveToDelayed", "job_id")
    local entry_id = ARGV[2] or missing("moveActiveToDelayed", "entry_id")
    local now_ms = ARGV[3] == "0" and 0 or numeric(ARGV[3]) or missing("moveActiveToDelayed", "now_ms")
    local delayed_until_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or 0
    local group = ARGV[5] or "workers"
    local new_data = ARGV[6] or ""
    local broadcast = ARGV[7] == "1"
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    local job, problem = active.load(queue, job_id)
    if not job then
      return problem
    end
    active.leave(queue, job_id, entry_id, group, broadcast)
    deferral.until_due(queue, job_id, job, delayed_until_ms, now_ms, new_data)
    return "ok"
  end)
end

do -- moveToActive
  local activation = require("activation")
  local record = require("record")
  redis.register_function("glidemq_moveToActive", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("moveToActive", "job")
    end
    local job_key = KEYS[1]
    local stream_key = KEYS[2]
    local now_ms = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or missing("moveToActive", "now_ms")
    local entry_id = ARGV[2] or ""
    local group = ARGV[3] or ""
    local job_id = ARGV[4] or ""
    local broadcast = ARGV[5] == "1"
    local queue, named = record.locate(job_key)
    local entry = { id = entry_id, group = stream_key and group or "", broadcast = broadcast }
    local flat, verdict = activation.try(queue, job_id ~= "" and job_id or named, entry, now_ms)
    return flat or verdict
  end)
end

do -- moveToWaitingChildren
  local active = require("active")
  local deferral = require("deferral")
  redis.register_function("glidemq_moveToWaitingChildren", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 3 then
      missing("moveToWaitingChildren", "events")
    end
    local job_id = ARGV[1] or missing("moveToWaitingChildren", "job_id")
    local entry_id = ARGV[2] or missing("moveToWaitingChildren", "entry_id")
    local group = ARGV[3] or missing("moveToWaitingChildren", "group")
    local now_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("moveToWaitingChildren", "now_ms")
    local broadcast = ARGV[5] == "1"
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    local job, problem = active.load(queue, job_id)
    if not job then
      return problem
    end
    active.leave(queue, job_id, entry_id, group, broadcast)
    return deferral.for_children(queue, job_id, job, now_ms) and "ok" or "completed"
  end)
end

do -- nextDue
  local promotion = require("promotion")
  redis.register_function("glidemq_nextDue", function(KEYS)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("nextDue", "ratelimited")
    end
    local scheduled_key = KEYS[1]
    local ratelimited_key = KEYS[2]
    return promotion.next_due(scheduled_key, ratelimited_key)
  end)
end

do -- pause
  local events = require("events")
  redis.register_function("glidemq_pause", function(KEYS)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("pause", "events")
    end
    local meta_key = KEYS[1]
    local queue = KEYS[1]:sub(1, -5)
    _redis_call("HSET", meta_key, "paused", 1)
    events.emit(queue, "paused", 0)
    return 1
  end)
end

do -- popLists
  local lists = require("lists")
  redis.register_function("glidemq_popLists", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("popLists", "lifo")
    end
    local count = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or 1
    local queue = KEYS[1]:sub(1, -9)
    if count <= 0 then
      return {}
    end
    return lists.taken(queue, lists.pop(queue, count))
  end)
end

do -- promote
  local promotion = require("promotion")
  local shares = require("shares")
  redis.register_function("glidemq_promote", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 3 then
      missing("promote", "events")
    end
    local now_ms = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or missing("promote", "now_ms")
    local queue = KEYS[1]:sub(1, -10)
    local moved = promotion.due(queue, now_ms, 1000)
    shares.mend(queue, true)
    return moved
  end)
end

do -- promoteJob
  local events = require("events")
  local placement = require("placement")
  local record = require("record")
  redis.register_function("glidemq_promoteJob", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("promoteJob", "events")
    end
    local job_key = KEYS[1]
    local scheduled_key = KEYS[3]
    local job_id = ARGV[1] or missing("promoteJob", "job_id")
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    local job = record.load(queue, job_id)
    if not job then
      return "error:not_found"
    elseif job.state ~= "delayed" then
      return "error:not_delayed"
    end
    _redis_call("ZREM", scheduled_key, job_id)
    _redis_call("HSET", job_key, "state", "waiting", "delay", 0)
    placement.ready(queue, job_id, job)
    events.emit(queue, "promoted", job_id)
    return "ok"
  end)
end

do -- promoteRateLimited
  local promotion = require("promotion")
  redis.register_function("glidemq_promoteRateLimited", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("promoteRateLimited", "stream")
    end
    local now_ms = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or missing("promoteRateLimited", "now_ms")
    local queue = KEYS[1]:sub(1, -12)
    return promotion.limited(queue, now_ms)
  end)
end

do -- rateLimit
  redis.register_function("glidemq_rateLimit", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("rateLimit", "meta")
    end
    local rate_key = KEYS[1]
    local meta_key = KEYS[2]
    local max_starts = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or missing("rateLimit", "max_starts")
    local window_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or missing("rateLimit", "window_ms")
    local now_ms = ARGV[3] == "0" and 0 or numeric(ARGV[3]) or missing("rateLimit", "now_ms")
    if max_starts <= 0 then
      local setting = _redis_call("HMGET", meta_key, "rateLimitMax", "rateLimitDuration")
      max_starts, window_ms = _tonumber(setting[1]) or 0, _tonumber(setting[2]) or 0
    end
    if max_starts <= 0 or window_ms <= 0 then
      return 0
    end
    local window = _redis_call("HMGET", rate_key, "windowStart", "count")
    local elapsed = now_ms - (_tonumber(window[1]) or 0)
    if elapsed >= window_ms then
      _redis_call("HSET", rate_key, "windowStart", now_ms, "count", 1)
      return 0
    end
    if (_tonumber(window[2]) or 0) >= max_starts then
      return window_ms - elapsed
    end
    _redis_call("HINCRBY", rate_key, "count", 1)
    return 0
  end)
end

do -- rateLimitGroup
  local active = require("active")
  local group_limit = require("group_limit")
  local record = require("record")
  redis.register_function("glidemq_rateLimitGroup", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("rateLimitGroup", "stream")
    end
    local job_id = ARGV[1] or missing("rateLimitGroup", "job_id")
    local entry_id = ARGV[2] or missing("rateLimitGroup", "entry_id")
    local group = ARGV[3] or missing("rateLimitGroup", "group")
    local duration_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("rateLimitGroup", "duration_ms")
    local now_ms = ARGV[5] == "0" and 0 or numeric(ARGV[5]) or missing("rateLimitGroup", "now_ms")
    local broadcast = ARGV[6] == "1"
    local current_job = ARGV[7] or "requeue"
    local requeue_position = ARGV[8] or "front"
    local extend = ARGV[9] or "max"
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    local job = record.load(queue, job_id)
    if not job or job.state ~= "active" then
      return "error:not_active"
    elseif not job.groupKey or job.groupKey == "" then
      return "error:no_group"
    end
    active.leave(queue, job_id, entry_id, group, broadcast)
    local fate = current_job == "fail" and "fail" or requeue_position == "back" and "back" or "front"
    group_limit.put_down(queue, job_id, job, now_ms, fate)
    return _tostring(group_limit.group(queue, job.groupKey, job_id, duration_ms, now_ms, extend))
  end)
end

do -- rateLimitGroupExternal
  local group_limit = require("group_limit")
  redis.register_function("glidemq_rateLimitGroupExternal", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("rateLimitGroupExternal", "events")
    end
    local group_key = ARGV[1] or missing("rateLimitGroupExternal", "group_key")
    local duration_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or missing("rateLimitGroupExternal", "duration_ms")
    local now_ms = ARGV[3] == "0" and 0 or numeric(ARGV[3]) or missing("rateLimitGroupExternal", "now_ms")
    local extend = ARGV[4] or "max"
    local queue = KEYS[1]:sub(1, -12)
    return group_limit.group(queue, group_key, "", duration_ms, now_ms, extend)
  end)
end

do -- reclaimStalled
  local reclaim = require("reclaim")
  redis.register_function("glidemq_reclaimStalled", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("reclaimStalled", "events")
    end
    local group = ARGV[1] or missing("reclaimStalled", "group")
    local consumer = ARGV[2] or missing("reclaimStalled", "consumer")
    local min_idle_ms = ARGV[3] == "0" and 0 or numeric(ARGV[3]) or missing("reclaimStalled", "min_idle_ms")
    local max_stalled_count = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or 1
    local now_ms = ARGV[5] == "0" and 0 or numeric(ARGV[5]) or missing("reclaimStalled", "now_ms")
    local broadcast = ARGV[7] == "1"
    local lock_duration_ms = ARGV[8] == "0" and 0 or numeric(ARGV[8]) or 0
    local queue = KEYS[1]:sub(1, -7)
    return (reclaim.entries(queue, consumer, {
      group = group,
      min_idle_ms = min_idle_ms,
      lock_duration_ms = lock_duration_ms,
      most_stalls = max_stalled_count,
      now_ms = now_ms,
      broadcast = broadcast,
    }))
  end)
end

do -- reclaimStalledListJobs
  local reclaim = require("reclaim")
  redis.register_function("glidemq_reclaimStalledListJobs", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("reclaimStalledListJobs", "events")
    end
    local min_idle_ms = ARGV[1] == "0" and 0 or numeric(ARGV[1])
    local max_stalled_count = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or 1
    local now_ms = ARGV[3] == "0" and 0 or numeric(ARGV[3])
    local lock_duration_ms = ARGV[5] == "0" and 0 or numeric(ARGV[5]) or 0
    local queue = KEYS[1]:sub(1, -7)
    if not min_idle_ms or not now_ms then
      return 0
    end
    return (reclaim.list_jobs(queue, {
      min_idle_ms = min_idle_ms,
      lock_duration_ms = lock_duration_ms,
      most_stalls = max_stalled_count,
      now_ms = now_ms,
    }))
  end)
end

do -- recordUsageAndCheckBudget
  local budgets = require("budgets")
  local usage = {}
  redis.register_function("glidemq_recordUsageAndCheckBudget", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("recordUsageAndCheckBudget", "budget")
    end
    local budget_key = KEYS[1]
    usage.tokens = ARGV[1] or "{}"
    usage.costs = ARGV[2] or "{}"
    usage.weighted_tokens = ARGV[3] == "0" and 0 or numeric(ARGV[3]) or 0
    usage.total_cost = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or 0
    local max_tokens = ARGV[5] or "{}"
    local max_costs = ARGV[6] or "{}"
    if _redis_call("EXISTS", budget_key) == 0 then
      return "no_budget"
    end
    budgets.record(budget_key, usage)
    if not budgets.exceeded(budget_key, max_tokens, max_costs) then
      return "ok"
    end
    _redis_call("HSET", budget_key, "exceeded", 1)
    return "exceeded"
  end)
end

do -- registerParent
  local flows = require("flows")
  redis.register_function("glidemq_registerParent", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 6 then
      missing("registerParent", "parent_events")
    end
    local job_key = KEYS[1]
    local parents_key = KEYS[2]
    local parent_deps_key = KEYS[3]
    local parent_job_key = KEYS[4]
    local parent_id = ARGV[2] or missing("registerParent", "parent_id")
    local parent_queue = ARGV[3] or missing("registerParent", "parent_queue")
    local deps_member = ARGV[4] or missing("registerParent", "deps_member")
    local child = _redis_call("HMGET", job_key, "state", "id")
    if not child[1] and not child[2] and _redis_call("EXISTS", job_key) == 0 then
      return "error:child_not_found"
    end
    _redis_call("SADD", parents_key, parent_queue .. ":" .. parent_id)
    _redis_call("SADD", parent_deps_key, deps_member)
    if child[1] ~= "completed" then
      return "ok"
    end
    flows.notify(flows.queue_of(parent_job_key, parent_id), parent_id, deps_member)
    return "already_completed"
  end)
end

do -- removeJob
  local events = require("events")
  local removal = require("removal")
  redis.register_function("glidemq_removeJob", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 7 then
      missing("removeJob", "log")
    end
    local job_id = ARGV[1] or missing("removeJob", "job_id")
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    if not removal.remove(queue, job_id) then
      return 0
    end
    events.emit(queue, "removed", job_id)
    return 1
  end)
end

do -- renewLock
  redis.register_function("glidemq_renewLock", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("renewLock", "lock")
    end
    local lock_key = KEYS[1]
    local token = ARGV[1] or missing("renewLock", "token")
    local ttl_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or 1000
    if _redis_call("GET", lock_key) ~= token then
      return 0
    end
    return _redis_call("PEXPIRE", lock_key, ttl_ms)
  end)
end

do -- resume
  local events = require("events")
  redis.register_function("glidemq_resume", function(KEYS)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 2 then
      missing("resume", "events")
    end
    local meta_key = KEYS[1]
    local queue = KEYS[1]:sub(1, -5)
    _redis_call("HSET", meta_key, "paused", 0)
    events.emit(queue, "resumed", 0)
    return 1
  end)
end

do -- retryJobs
  local events = require("events")
  local retry = require("retry")
  redis.register_function("glidemq_retryJobs", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("retryJobs", "id")
    end
    local count = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or 0
    local now_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2])
    local queue = KEYS[4]:sub(1, -3)
    if not now_ms then
      return redis.error_reply("invalid timestamp")
    end
    local retried = retry.failed(queue, count, now_ms)
    if retried > 0 then
      events.emit(queue, "retried", retried)
    end
    return retried
  end)
end

do -- revoke
  local revocation = require("revocation")
  redis.register_function("glidemq_revoke", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 5 then
      missing("revoke", "events")
    end
    local job_id = ARGV[1] or missing("revoke", "job_id")
    local now_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or missing("revoke", "now_ms")
    local group = ARGV[3] or missing("revoke", "group")
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    return revocation.revoke(queue, job_id, now_ms, group)
  end)
end

do -- rpopAndReserve
  local concurrency = require("concurrency")
  local lists = require("lists")
  redis.register_function("glidemq_rpopAndReserve", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("rpopAndReserve", "list")
    end
    local meta_key = KEYS[1]
    local stream_key = KEYS[2]
    local list_active_key = KEYS[3]
    local list_key = KEYS[4]
    local group = ARGV[1] or missing("rpopAndReserve", "group")
    local count = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or 1
    local queue = KEYS[1]:sub(1, -5)
    local room = concurrency.room(meta_key, stream_key, queue, group)
    local most = _math_min(count, room or count)
    if most <= 0 then
      return {}
    end
    local job_ids = _redis_call("RPOP", list_key, most) or {}
    if job_ids[1] then
      _redis_call("INCRBY", list_active_key, #job_ids)
    end
    return lists.taken(queue, job_ids)
  end)
end

do -- searchByName
  local search = require("search")
  redis.register_function("glidemq_searchByName", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("searchByName", "jobs")
    end
    local jobs_key = KEYS[1]
    local state_type = ARGV[1] or missing("searchByName", "state_type")
    local name = ARGV[2] or missing("searchByName", "name")
    local limit = ARGV[3] == "0" and 0 or numeric(ARGV[3]) or 100
    local key_prefix = ARGV[4] or missing("searchByName", "key_prefix")
    local queue = key_prefix
    return search.by_name(queue, jobs_key, state_type, name, limit)
  end)
end

do -- signal
  local events = require("events")
  local stream = require("stream")
  redis.register_function("glidemq_signal", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 5 then
      missing("signal", "signals")
    end
    local job_key = KEYS[1]
    local suspended_key = KEYS[4]
    local signals_key = KEYS[5]
    local job_id = ARGV[1] or missing("signal", "job_id")
    local signal_name = ARGV[2] or missing("signal", "signal_name")
    local signal_data = ARGV[3] or ""
    local now_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("signal", "now_ms")
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    local job = _redis_call("HMGET", job_key, "state", "name")
    if job[1] ~= "suspended" then
      return "not_suspended"
    end
    _redis_call("RPUSH", signals_key, _cjson_encode({ name = signal_name, data = signal_data, receivedAt = now_ms }))
    local all = "[" .. _table_concat(_redis_call("LRANGE", signals_key, 0, -1), ",") .. "]"
    _redis_call("HSET", job_key, "signals", all, "state", "waiting")
    _redis_call("ZREM", suspended_key, job_id)
    stream.push(queue, job_id, job[2])
    events.emit(queue, "resumed", job_id, "signal", signal_name)
    return "ok"
  end)
end

do -- suspend
  local active = require("active")
  local deferral = require("deferral")
  redis.register_function("glidemq_suspend", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("suspend", "suspended")
    end
    local job_id = ARGV[1] or missing("suspend", "job_id")
    local entry_id = ARGV[2] or missing("suspend", "entry_id")
    local group = ARGV[3] or missing("suspend", "group")
    local now_ms = ARGV[4] == "0" and 0 or numeric(ARGV[4]) or missing("suspend", "now_ms")
    local reason = ARGV[5] or ""
    local timeout_ms = ARGV[6] == "0" and 0 or numeric(ARGV[6]) or 0
    local broadcast = ARGV[7] == "1"
    local queue = KEYS[1]:sub(1, -#job_id - 5)
    local job, problem = active.load(queue, job_id)
    if not job then
      return problem
    end
    active.leave(queue, job_id, entry_id, group, broadcast)
    deferral.for_signal(queue, job_id, job, now_ms, reason, timeout_ms)
    return "ok"
  end)
end

do -- sweepSuspended
  local suspension = require("suspension")
  redis.register_function("glidemq_sweepSuspended", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 4 then
      missing("sweepSuspended", "metrics")
    end
    local now_ms = ARGV[1] == "0" and 0 or numeric(ARGV[1]) or missing("sweepSuspended", "now_ms")
    local key_prefix = ARGV[2] or missing("sweepSuspended", "key_prefix")
    local queue = key_prefix
    return suspension.sweep(queue, now_ms)
  end)
end

do -- tryLock
  redis.register_function("glidemq_tryLock", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("tryLock", "lock")
    end
    local lock_key = KEYS[1]
    local token = ARGV[1] or missing("tryLock", "token")
    local ttl_ms = ARGV[2] == "0" and 0 or numeric(ARGV[2]) or 1000
    return _redis_call("SET", lock_key, token, "PX", ttl_ms, "NX") and 1 or 0
  end)
end

do -- unlock
  redis.register_function("glidemq_unlock", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    if #KEYS < 1 then
      missing("unlock", "lock")
    end
    local lock_key = KEYS[1]
    local token = ARGV[1] or missing("unlock", "token")
    if _redis_call("GET", lock_key) ~= token then
      return 0
    end
    return _redis_call("DEL", lock_key)
  end)
end

do -- version
  redis.register_function("glidemq_version", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local detail = ARGV[1] or ""
    if detail == "revision" then
      return "93." .. REVISION
    end
    return "93"
  end)
end
