#!lua name=chasquimq
-- Generated from lua/chasquimq/ and lua/lib/; do not edit. Regenerate with: python tools/bundle_lua.py

local modules = {}

local function require(name)
  return modules[name]
end

local REVISION = "5"

local _error, _ipairs, _math_floor, _redis_call, _redis_pcall, _tonumber, _type, _unpack

local function look_up()
  _error, _ipairs, _math_floor, _redis_call, _redis_pcall, _tonumber, _type, _unpack = error, ipairs, math.floor, redis.call, redis.pcall, tonumber, type, unpack
end

--- Refuse a call, before anything is written.
local function refuse(fname, why)
  _error({ err = "OQ_BAD_ARGUMENT chasquimq_" .. fname .. ": " .. why })
end

local function count_words(fname, keys, keys_wanted, words, words_wanted)
  if keys ~= keys_wanted or words ~= words_wanted then
    refuse(fname, ("takes %d keys and %.0f arguments, not %d and %d"):format(keys_wanted, words_wanted, keys, words))
  end
end

--- A whole number from 0 to 2^53.
local function whole(word, fname, name)
  if word == "0" then
    return 0
  end
  local number = word and word:find("^%d+$") and _tonumber(word)
  if not number or number > 9007199254740992 then
    refuse(fname, "'" .. name .. "' is not a whole number from 0 to 2^53")
  end
  return number
end

local function flag(word, fname, name)
  if word ~= "0" and word ~= "1" then
    refuse(fname, "'" .. name .. "' is neither 0 nor 1")
  end
  return word == "1"
end

--- What every key of the queue begins with, from a key whose own name comes last.
local function queue_of(fname, key, name)
  if key:sub(-#name) ~= name then
    refuse(fname, "the key '" .. key .. "' does not end in '" .. name .. "'")
  end
  return key:sub(1, -#name - 1)
end

modules.jobs = (function()
--- Jobs of ChasquiMQ's stream: published, taken off, and split from the members that wait for their time.

local jobs = {}

--- Add a job to the stream.
function jobs.publish(stream_key, max_length, name, envelope)
  local command = { "XADD", stream_key, "MAXLEN", "~", max_length, "*", "d", envelope }
  if name ~= "" then
    command[9], command[10] = "n", name
  end
  return _redis_call(_unpack(command))
end

--- Take a delivered job off the stream. False when another worker was faster.
function jobs.take(stream_key, group, entry_id)
  if _redis_call("XACK", stream_key, group, entry_id) == 0 then
    return false
  end
  _redis_call("XDEL", stream_key, entry_id)
  return true
end

--- Split a delayed member into name and envelope. Nothing when its length prefix does not fit.
function jobs.split(member)
  if #member < 4 then
    return nil
  end
  local first, second, third, fourth = member:byte(1, 4)
  local finish = 4 + first + second * 256 + third * 65536 + fourth * 16777216
  if finish > #member then
    return nil
  end
  return member:sub(5, finish), member:sub(finish + 1)
end

--- The server's clock, in epoch ms. Workers' clocks may differ.
function jobs.now_ms()
  local time = _redis_call("TIME")
  return time[1] * 1000 + _math_floor(time[2] / 1000)
end

--- Add an entry to the dead-letter queue.
function jobs.bury(dead_letters_key, max_length, letter)
  local command = { "XADD", dead_letters_key, "MAXLEN", "~", max_length, "*", "d", letter.envelope }
  for _, field in _ipairs({ "n", "source_id", "reason", "detail" }) do
    local value = letter[field]
    if value and value ~= "" then
      command[#command + 1] = field
      command[#command + 1] = value
    end
  end
  return _redis_call(_unpack(command))
end

return jobs
end)()

modules.leader = (function()
--- Leader election as ChasquiMQ does it: a key with a time to live that names its holder.

local leader = {}

--- Take or renew the lock. False when another holds it.
function leader.hold(lock_key, holder, ttl_s)
  local current = _redis_call("GET", lock_key)
  if current and current ~= holder then
    return false
  end
  _redis_call("SET", lock_key, holder, "EX", ttl_s)
  return true
end

return leader
end)()

do -- acknowledge
  redis.register_function{ function_name = "chasquimq_acknowledge", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local group = ARGV[1]
    local entry_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "acknowledge", "entry_count")
    count_words("acknowledge", #KEYS, 1, #ARGV, 2 + entry_count)
    local entry_ids = {}
    for index = 1, entry_count do
      entry_ids[index] = ARGV[2 + index]
    end
    local stream_key = KEYS[1]
    local taken = 0
    for _, entry_id in _ipairs(entry_ids) do
      taken = taken + _redis_call("XACK", stream_key, group, entry_id)
      _redis_call("XDEL", stream_key, entry_id)
    end
    return taken
  end }
end

do -- add
  local jobs = require("jobs")
  redis.register_function("chasquimq_add", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local ttl_s = ARGV[1] == "0" and 0 or whole(ARGV[1], "add", "ttl_s")
    local max_length = ARGV[2] == "0" and 0 or whole(ARGV[2], "add", "max_length")
    local job_name = ARGV[3]
    local envelope = ARGV[4]
    count_words("add", #KEYS, 2, #ARGV, 4)
    local stream_key = KEYS[1]
    local marker_key = KEYS[2]
    if _redis_call("EXISTS", marker_key) == 1 then
      return 0
    end
    -- Commands that can fail come first: a marker without its job would refuse the job for an hour.
    jobs.publish(stream_key, max_length, job_name, envelope)
    _redis_call("SET", marker_key, "1", "EX", ttl_s)
    return 1
  end)
end

do -- bury
  local jobs = require("jobs")
  redis.register_function("chasquimq_bury", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local group = ARGV[1]
    local entry_id = ARGV[2]
    local max_dead = ARGV[3] == "0" and 0 or whole(ARGV[3], "bury", "max_dead")
    local envelope = ARGV[4]
    local job_name = ARGV[5]
    local reason = ARGV[6]
    local detail = ARGV[7]
    count_words("bury", #KEYS, 2, #ARGV, 7)
    local stream_key = KEYS[1]
    local dead_letters_key = KEYS[2]
    if not jobs.take(stream_key, group, entry_id) then
      return 0
    end
    local letter = { envelope = envelope, n = job_name, source_id = entry_id, reason = reason, detail = detail }
    jobs.bury(dead_letters_key, max_dead, letter)
    return 1
  end)
end

do -- cancel
  redis.register_function("chasquimq_cancel", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    count_words("cancel", #KEYS, 3, #ARGV, 0)
    local delayed_key = KEYS[1]
    local index_key = KEYS[2]
    local marker_key = KEYS[3]
    local member = _redis_call("GET", index_key)
    if not member or _redis_call("ZREM", delayed_key, member) == 0 then
      return 0
    end
    _redis_call("DEL", index_key, marker_key)
    return 1
  end)
end

do -- claim
  redis.register_function{ function_name = "chasquimq_claim", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local group = ARGV[1]
    local consumer = ARGV[2]
    local idle_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "claim", "idle_ms")
    local most = ARGV[4] == "0" and 0 or whole(ARGV[4], "claim", "most")
    count_words("claim", #KEYS, 1, #ARGV, 4)
    local stream_key = KEYS[1]
    local claimed = {}
    for _, pending in _ipairs(_redis_call("XPENDING", stream_key, group, "IDLE", idle_ms, "-", "+", most)) do
      local entry = _redis_call("XCLAIM", stream_key, group, consumer, idle_ms, pending[1])[1]
      if entry then
        claimed[#claimed + 1] = { entry[1], entry[2], pending[4] }
      end
    end
    return claimed
  end }
end

do -- delay
  redis.register_function("chasquimq_delay", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local ttl_s = ARGV[1] == "0" and 0 or whole(ARGV[1], "delay", "ttl_s")
    local run_at_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "delay", "run_at_ms")
    local member = ARGV[3]
    count_words("delay", #KEYS, 3, #ARGV, 3)
    local marker_key = KEYS[1]
    local delayed_key = KEYS[2]
    local index_key = KEYS[3]
    if _redis_call("EXISTS", marker_key) == 1 then
      return 0
    end
    -- Commands that can fail come first: a marker without its job would refuse the job for an hour.
    _redis_call("ZADD", delayed_key, run_at_ms, member)
    _redis_call("SET", marker_key, "1", "EX", ttl_s)
    _redis_call("SET", index_key, member, "EX", ttl_s)
    return 1
  end)
end

do -- dropSpec
  redis.register_function("chasquimq_dropSpec", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local name = ARGV[1]
    count_words("dropSpec", #KEYS, 2, #ARGV, 1)
    local repeats_key = KEYS[1]
    local spec_key = KEYS[2]
    local removed = _redis_call("ZREM", repeats_key, name)
    _redis_call("DEL", spec_key)
    return removed
  end)
end

do -- due
  local leader = require("leader")
  redis.register_function("chasquimq_due", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local holder = ARGV[1]
    local ttl_s = ARGV[2] == "0" and 0 or whole(ARGV[2], "due", "ttl_s")
    local now_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "due", "now_ms")
    local most = ARGV[4] == "0" and 0 or whole(ARGV[4], "due", "most")
    count_words("due", #KEYS, 2, #ARGV, 4)
    local repeats_key = KEYS[1]
    local lock_key = KEYS[2]
    if not leader.hold(lock_key, holder, ttl_s) then
      return { 0, "-1" }
    end
    local first = _redis_call("ZRANGE", repeats_key, 0, 0, "WITHSCORES")
    local reply = { 1, first[2] or "-1" }
    local due = _redis_call("ZRANGEBYSCORE", repeats_key, "-inf", now_ms, "WITHSCORES", "LIMIT", 0, most)
    for index = 1, #due, 2 do
      -- A key of another type has no spec either, and must not stop the others.
      local packed = _redis_pcall("HGET", repeats_key .. ":spec:" .. due[index], "spec")
      if _type(packed) == "string" then
        reply[#reply + 1] = { due[index], due[index + 1], packed }
      else
        _redis_call("ZREM", repeats_key, due[index])
      end
    end
    return reply
  end)
end

do -- finish
  local jobs = require("jobs")
  redis.register_function{ function_name = "chasquimq_finish", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local group = ARGV[1]
    local entry_id = ARGV[2]
    local ttl_s = ARGV[3] == "0" and 0 or whole(ARGV[3], "finish", "ttl_s")
    local value = ARGV[4]
    count_words("finish", #KEYS, 2, #ARGV, 4)
    local stream_key = KEYS[1]
    local result_key = KEYS[2]
    if not jobs.take(stream_key, group, entry_id) then
      return 0
    end
    _redis_pcall("SET", result_key, value, "EX", ttl_s)
    return 1
  end }
end

do -- fire
  local jobs = require("jobs")
  redis.register_function("chasquimq_fire", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local name = ARGV[1]
    local score = ARGV[2]
    local next_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "fire", "next_ms")
    local fire_limit = ARGV[4] == "0" and 0 or whole(ARGV[4], "fire", "fire_limit")
    local max_length = ARGV[5] == "0" and 0 or whole(ARGV[5], "fire", "max_length")
    local job_name = ARGV[6]
    local envelope_count = ARGV[7] == "0" and 0 or whole(ARGV[7], "fire", "envelope_count")
    count_words("fire", #KEYS, 3, #ARGV, 7 + envelope_count)
    local envelopes = {}
    for index = 1, envelope_count do
      envelopes[index] = ARGV[7 + index]
    end
    local stream_key = KEYS[1]
    local repeats_key = KEYS[2]
    local spec_key = KEYS[3]
    if _redis_call("ZSCORE", repeats_key, name) ~= score then
      return -1
    end
    local fired = _tonumber(_redis_call("HGET", spec_key, "fired") or "0")
    local added = 0
    for _, envelope in _ipairs(envelopes) do
      if fire_limit > 0 and fired >= fire_limit then
        break
      end
      jobs.publish(stream_key, max_length, job_name, envelope)
      fired = _redis_call("HINCRBY", spec_key, "fired", 1)
      added = added + 1
    end
    if next_ms == 0 or (fire_limit > 0 and fired >= fire_limit) then
      _redis_call("ZREM", repeats_key, name)
      _redis_call("DEL", spec_key)
    else
      _redis_call("ZADD", repeats_key, next_ms, name)
    end
    return added
  end)
end

do -- promote
  local jobs = require("jobs")
  local leader = require("leader")
  redis.register_function("chasquimq_promote", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local holder = ARGV[1]
    local ttl_s = ARGV[2] == "0" and 0 or whole(ARGV[2], "promote", "ttl_s")
    local most = ARGV[3] == "0" and 0 or whole(ARGV[3], "promote", "most")
    local max_length = ARGV[4] == "0" and 0 or whole(ARGV[4], "promote", "max_length")
    local max_dead = ARGV[5] == "0" and 0 or whole(ARGV[5], "promote", "max_dead")
    count_words("promote", #KEYS, 4, #ARGV, 5)
    local delayed_key = KEYS[1]
    local stream_key = KEYS[2]
    local dead_letters_key = KEYS[3]
    local lock_key = KEYS[4]
    if not leader.hold(lock_key, holder, ttl_s) then
      return { 0, 0 }
    end
    local reply = { 1, 0 }
    for _, member in _ipairs(_redis_call("ZRANGEBYSCORE", delayed_key, "-inf", jobs.now_ms(), "LIMIT", 0, most)) do
      local name, envelope = jobs.split(member)
      if name then
        jobs.publish(stream_key, max_length, name, envelope)
        reply[#reply + 1] = envelope
      else
        local detail = "delayed member without a valid name length"
        jobs.bury(dead_letters_key, max_dead, { envelope = member, reason = "malformed", detail = detail })
      end
      _redis_call("ZREM", delayed_key, member)
    end
    reply[2] = _redis_call("ZCARD", delayed_key)
    return reply
  end)
end

do -- putSpec
  redis.register_function("chasquimq_putSpec", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local next_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "putSpec", "next_ms")
    local name = ARGV[2]
    local packed = ARGV[3]
    count_words("putSpec", #KEYS, 2, #ARGV, 3)
    local repeats_key = KEYS[1]
    local spec_key = KEYS[2]
    _redis_call("ZADD", repeats_key, next_ms, name)
    _redis_call("HSET", spec_key, "spec", packed)
    return 1
  end)
end

do -- rejectSpec
  local jobs = require("jobs")
  redis.register_function("chasquimq_rejectSpec", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local name = ARGV[1]
    local packed = ARGV[2]
    local max_dead = ARGV[3] == "0" and 0 or whole(ARGV[3], "rejectSpec", "max_dead")
    local detail = ARGV[4]
    count_words("rejectSpec", #KEYS, 2, #ARGV, 4)
    local repeats_key = KEYS[1]
    local dead_letters_key = KEYS[2]
    -- Names need not be text: the spec's key is built here.
    local spec_key = repeats_key .. ":spec:" .. name
    if (_redis_call("HGET", spec_key, "spec") or "") ~= packed or _redis_call("ZREM", repeats_key, name) == 0 then
      return 0
    end
    _redis_call("DEL", spec_key)
    jobs.bury(dead_letters_key, max_dead, { envelope = packed, reason = "malformed", detail = detail })
    return 1
  end)
end

do -- release
  redis.register_function("chasquimq_release", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local holder = ARGV[1]
    count_words("release", #KEYS, 1, #ARGV, 1)
    local lock_key = KEYS[1]
    if _redis_call("GET", lock_key) ~= holder then
      return 0
    end
    return _redis_call("DEL", lock_key)
  end)
end

do -- renew
  redis.register_function{ function_name = "chasquimq_renew", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local group = ARGV[1]
    local consumer = ARGV[2]
    local entry_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "renew", "entry_count")
    count_words("renew", #KEYS, 1, #ARGV, 3 + entry_count)
    local entry_ids = {}
    for index = 1, entry_count do
      entry_ids[index] = ARGV[3 + index]
    end
    local stream_key = KEYS[1]
    local renewed = {}
    for index, entry_id in _ipairs(entry_ids) do
      local pending = _redis_call("XPENDING", stream_key, group, entry_id, entry_id, 1, consumer)
      renewed[index] = #pending
      if pending[1] then
        _redis_call("XCLAIM", stream_key, group, consumer, 0, entry_id, "JUSTID")
      end
    end
    return renewed
  end }
end

do -- replay
  local jobs = require("jobs")
  redis.register_function("chasquimq_replay", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local max_length = ARGV[1] == "0" and 0 or whole(ARGV[1], "replay", "max_length")
    local letter_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "replay", "letter_count")
    count_words("replay", #KEYS, 2, #ARGV, 2 + 3 * letter_count)
    local letters = {}
    for index = 1, letter_count do
      local arg = 2 + (index - 1) * 3
      letters[index] = {
        entry_id = ARGV[arg + 1],
        envelope = ARGV[arg + 2],
        job_name = ARGV[arg + 3],
      }
    end
    local dead_letters_key = KEYS[1]
    local stream_key = KEYS[2]
    local replayed = 0
    for _, letter in _ipairs(letters) do
      if _redis_call("XDEL", dead_letters_key, letter.entry_id) == 1 then
        jobs.publish(stream_key, max_length, letter.job_name, letter.envelope)
        replayed = replayed + 1
      end
    end
    return replayed
  end)
end

do -- report
  redis.register_function("chasquimq_report", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local max_length = ARGV[1] == "0" and 0 or whole(ARGV[1], "report", "max_length")
    local packed = ARGV[2]
    count_words("report", #KEYS, 1, #ARGV, 2)
    local events_key = KEYS[1]
    local events = cmsgpack.unpack(packed)
    for _, event in _ipairs(events) do
      _redis_call("XADD", events_key, "MAXLEN", "~", max_length, "*", _unpack(event))
    end
    return #events
  end)
end

do -- retry
  local jobs = require("jobs")
  redis.register_function("chasquimq_retry", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local group = ARGV[1]
    local entry_id = ARGV[2]
    local backoff_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "retry", "backoff_ms")
    local member = ARGV[4]
    count_words("retry", #KEYS, 2, #ARGV, 4)
    local stream_key = KEYS[1]
    local delayed_key = KEYS[2]
    if not jobs.take(stream_key, group, entry_id) then
      return 0
    end
    _redis_call("ZADD", delayed_key, jobs.now_ms() + backoff_ms, member)
    return 1
  end)
end

do -- version
  redis.register_function("chasquimq_version", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    count_words("version", #KEYS, 0, #ARGV, 0)
    return REVISION
  end)
end
