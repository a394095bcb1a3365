#!lua name=orchestration_queue_1
-- Generated from lua/orchestration_queue_1/ and lua/lib/; do not edit. Regenerate with: python tools/bundle_lua.py

local modules = {}

local function require(name)
  return modules[name]
end

local REVISION = "40"

local _cjson_decode, _cjson_encode, _cjson_new, _error, _ipairs, _math_ceil, _math_floor, _math_max, _math_min, _next, _pairs, _pcall, _redis_call, _redis_pcall, _select, _string_format, _string_rep, _table_concat, _table_remove, _table_sort, _tonumber, _type, _unpack

local function look_up()
  _cjson_decode, _cjson_encode, _cjson_new, _error, _ipairs, _math_ceil, _math_floor, _math_max, _math_min, _next, _pairs, _pcall, _redis_call, _redis_pcall, _select, _string_format, _string_rep, _table_concat, _table_remove, _table_sort, _tonumber, _type, _unpack = cjson.decode, cjson.encode, cjson.new, error, ipairs, math.ceil, math.floor, math.max, math.min, next, pairs, pcall, redis.call, redis.pcall, select, string.format, string.rep, table.concat, table.remove, table.sort, tonumber, type, unpack
end

--- Refuse a call, before anything is written.
local function refuse(fname, why)
  _error({ err = "OQ_BAD_ARGUMENT oq1_" .. fname .. ": " .. why })
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

modules.pools = (function()
--- Pools: slots that jobs of all queues share, held under leases and granted in order of arrival.
--- After `base` come `slots` (pool: how many), `holders:POOL` (token: end of its lease, weight, start of its attempt),
--- `waiters:POOL` (tokens by arrival), `waiting` (token: what it waits for, as JSON) and `arrivals` (a counter). A token
--- names a job: the key that its queue's keys begin with, and its id.

local guarded = require("guarded")
local numbers = require("numbers")

local pools = {}

-- A woken job has this long to come back before those behind it may go ahead of it.
local GRACE_MS = 10000
-- How long a waiting job sleeps at most when it is not woken: the first ones less, as they repair a wake that was lost.
local SLEEP_MS, SLEEP_PER_RANK_MS, LONGEST_SLEEP_MS = 5000, 50, 600000
local PAGE, MOST_VISITED, MOST_WOKEN = 100, 1000, 100

function pools.open(base, now)
  return { base = base, now = now, slots = {}, read = {} }
end

--- How many slots a pool has; nil when it is not defined.
function pools.slots(self, name)
  if self.slots[name] == nil then
    self.slots[name] = numbers.whole(_redis_call("HGET", self.base .. "slots", name) or nil) or false
  end
  return self.slots[name] or nil
end

local function holders_key(self, name)
  return self.base .. "holders:" .. name
end

local function waiters_key(self, name)
  return self.base .. "waiters:" .. name
end

--- A pool's live holders, by token, and how many slots they hold. Leases that ran out are dropped.
local function holders(self, name)
  if self.read[name] then
    return self.read[name]
  end
  local found, lapsed = { by_token = {}, used = 0 }, {}
  local flat = guarded.call("HGETALL", holders_key(self, name))
  for index = 1, #flat, 2 do
    local ends, weight, taken = flat[index + 1]:match("^(%d+) (%d+) (%d+)$")
    if ends and _tonumber(ends) > self.now then
      found.by_token[flat[index]] = { weight = _tonumber(weight), taken = _tonumber(taken) }
      found.used = found.used + _tonumber(weight)
    else
      lapsed[#lapsed + 1] = flat[index]
    end
  end
  for _, token in _ipairs(lapsed) do
    _redis_call("HDEL", holders_key(self, name), token)
  end
  self.read[name] = found
  return found
end

local function hold(self, name, token, weight, taken, lease_ms)
  local text = _string_format("%.0f %.0f %.0f", self.now + lease_ms, weight, taken)
  guarded.call("HSET", holders_key(self, name), token, text)
  self.read[name] = nil
end

local function let_go(self, name, token)
  guarded.call("HDEL", holders_key(self, name), token)
  self.read[name] = nil
end

local function decode(text)
  local readable, waiter = _pcall(_cjson_decode, text or "")
  local sound = readable and _type(waiter) == "table" and _type(waiter.pools) == "table"
  if not sound or not _tonumber(waiter.arrival) then
    return nil
  end
  waiter.patience, waiter.again = _tonumber(waiter.patience) or 0, _tonumber(waiter.again) or 0
  return waiter
end

local function load_waiter(self, token)
  return decode(guarded.call("HGET", self.base .. "waiting", token) or nil)
end

local function store_waiter(self, token, waiter)
  guarded.call("HSET", self.base .. "waiting", token, _cjson_encode(waiter))
end

--- Take a job off all lists; returns what it waited for.
local function forget_waiter(self, token)
  local waiter = load_waiter(self, token)
  for name in _pairs(waiter and waiter.pools or {}) do
    guarded.call("ZREM", waiters_key(self, name), token)
  end
  guarded.call("HDEL", self.base .. "waiting", token)
  return waiter
end

--- Visit the first waiters of a pool in order of arrival, until `visit` returns true.
local function each_waiter(self, name, visit)
  local stale = {}
  for first = 0, MOST_VISITED - 1, PAGE do
    local tokens = guarded.call("ZRANGE", waiters_key(self, name), first, first + PAGE - 1)
    local texts = tokens[1] and guarded.call("HMGET", self.base .. "waiting", _unpack(tokens)) or {}
    local is_over = #tokens < PAGE
    for index, token in _ipairs(tokens) do
      local waiter = decode(texts[index])
      if not (waiter and waiter.pools[name]) then
        stale[#stale + 1] = token
      elseif visit(token, waiter) then
        is_over = true
        break
      end
    end
    if is_over then
      break
    end
  end
  for _, token in _ipairs(stale) do
    guarded.call("ZREM", waiters_key(self, name), token)
  end
end

--- Whether others must let a waiter go first: it is expected back, and it could ever run.
local function is_first_in_line(self, waiter)
  if waiter.patience <= self.now then
    return false
  end
  for name, weight in _pairs(waiter.pools) do
    if weight > (pools.slots(self, name) or 0) then
      return false
    end
  end
  return true
end

--- Whether a job that arrived then finds free slots that no earlier job waits for.
local function fits(self, token, weights, arrival)
  for name, weight in _pairs(weights) do
    local holding = holders(self, name)
    local own = holding.by_token[token]
    local free = (pools.slots(self, name) or 0) - holding.used + (own and own.weight or 0)
    if free >= weight then
      each_waiter(self, name, function(_, waiter)
        if waiter.arrival >= arrival then
          return true
        elseif is_first_in_line(self, waiter) then
          free = free - waiter.pools[name]
        end
        return free < weight
      end)
    end
    if free < weight then
      return false
    end
  end
  return true
end

--- Tokens of the waiting jobs for which there are slots now and that were not woken yet, at most 100.
function pools.wake(self, names)
  local woken = {}
  for _, name in _ipairs(names) do
    local free = (pools.slots(self, name) or 0) - holders(self, name).used
    if free > 0 then
      each_waiter(self, name, function(token, waiter)
        local is_waited_for = is_first_in_line(self, waiter)
        if waiter.again <= self.now and fits(self, token, waiter.pools, waiter.arrival) then
          woken[#woken + 1] = token
          waiter.again = self.now + GRACE_MS
          waiter.patience = is_waited_for and waiter.again or 0
          store_waiter(self, token, waiter)
        end
        if is_waited_for then
          free = free - waiter.pools[name]
        end
        return free <= 0 or #woken >= MOST_WOKEN
      end)
    end
  end
  return woken
end

local function names_of(weights)
  local names = {}
  for name in _pairs(weights) do
    names[#names + 1] = name
  end
  _table_sort(names)
  return names
end

--- A damaged counter continues from the time, which is after all earlier arrivals.
local function next_arrival(self)
  local arrival = _redis_pcall("INCR", self.base .. "arrivals")
  if _type(arrival) ~= "number" then
    arrival = self.now
    _redis_call("SET", self.base .. "arrivals", _string_format("%.0f", arrival))
  end
  return arrival
end

--- Note that a job waits, at the place of its first arrival; returns how long to sleep.
local function wait(self, token, weights)
  local before = load_waiter(self, token)
  local arrival = before and before.arrival or next_arrival(self)
  forget_waiter(self, token)
  local rank = 0
  for name in _pairs(weights) do
    guarded.call("ZADD", waiters_key(self, name), arrival, token)
    rank = _math_max(rank, _redis_call("ZRANK", waiters_key(self, name), token))
  end
  local sleep_ms = _math_min(SLEEP_MS + rank * SLEEP_PER_RANK_MS, LONGEST_SLEEP_MS)
  store_waiter(self, token, {
    arrival = arrival,
    pools = weights,
    patience = self.now + sleep_ms + GRACE_MS,
    again = 0,
  })
  return sleep_ms
end

--- Take slots for one attempt, all or none. Returns `held`, `wait` and how long, `unknown` and the pool, or `late`.
function pools.acquire(self, token, taken, lease_ms, weights)
  local held = 0
  for name in _pairs(weights) do
    if not pools.slots(self, name) then
      forget_waiter(self, token)
      return "unknown", name
    end
    local own = holders(self, name).by_token[token]
    if own and own.taken > taken then
      return "late", 0
    end
    held = held + (own and 1 or 0)
  end
  local names = names_of(weights)
  local waiter = load_waiter(self, token)
  if held < #names and not fits(self, token, weights, waiter and waiter.arrival or math.huge) then
    for _, name in _ipairs(names) do
      let_go(self, name, token)
    end
    return "wait", wait(self, token, weights)
  end
  for name, weight in _pairs(weights) do
    hold(self, name, token, weight, taken, lease_ms)
  end
  if waiter then
    forget_waiter(self, token)
  end
  return "held", 0
end

--- Give back the slots of one attempt; those of a later one stay.
function pools.release(self, token, taken, names)
  for _, name in _ipairs(names) do
    local own = holders(self, name).by_token[token]
    if own and own.taken <= taken then
      let_go(self, name, token)
    end
  end
end

--- Renew the lease on one pool's slots, or restore it when it was lost; false when a later attempt has them.
function pools.renew(self, token, taken, lease_ms, name, weight)
  local own = holders(self, name).by_token[token]
  if not pools.slots(self, name) or own and own.taken > taken then
    return false
  end
  hold(self, name, token, weight, taken, lease_ms)
  return true
end

--- Whether any job holds slots of a pool, or waits for some.
function pools.is_used(self, name)
  return holders(self, name).used > 0 or guarded.call("EXISTS", waiters_key(self, name)) == 1
end

--- Skip a woken job that is gone or not ready. Returns the names of the pools that it waited for.
function pools.skip(self, token, is_gone)
  local waiter = is_gone and forget_waiter(self, token) or load_waiter(self, token)
  if not waiter then
    return {}
  end
  if not is_gone then
    waiter.patience, waiter.again = 0, self.now + GRACE_MS
    store_waiter(self, token, waiter)
  end
  return names_of(waiter.pools)
end

return pools
end)()

modules.validate = (function()
--- Refuses arguments of the right type that are meaningless, or would fail half-way through an exchange.

local validate = {}

local KINDS = { c = true, f = true, d = true, w = true, s = true, g = true }
local FATES = { front = true, back = true, fail = true }
local RETENTION_MODES = { ["0"] = true, ["true"] = true, count = true, age_count = true }

--- Refuse a call, before anything is written.
function validate.refuse(fname, why)
  _error({ err = "OQ_BAD_ARGUMENT oq1_" .. fname .. ": " .. why })
end

local function bad(why)
  validate.refuse("exchange", why)
end

function validate.check_limit(fname, limit)
  if limit == 0 then
    validate.refuse(fname, "a limit of 0 gets nowhere")
  end
end

--- Refuse text that is neither empty nor a valid name of a queue.
function validate.check_queue_name(fname, name)
  if name:find("[{}:]") then
    validate.refuse(fname, "'" .. name .. "' is not the name of a queue")
  end
end

local MOST_POOLS = 8

--- The weights of claims by pool, and the names of the pools.
function validate.claims(fname, claims)
  local weights, names = {}, {}
  if #claims < 1 or #claims > MOST_POOLS then
    validate.refuse(fname, "a job claims slots of 1 to " .. MOST_POOLS .. " pools")
  end
  for index, claim in _ipairs(claims) do
    if claim.weight < 1 then
      validate.refuse(fname, "a job claims at least 1 slot of a pool")
    end
    weights[claim.pool], names[index] = claim.weight, claim.pool
  end
  return weights, names
end

local function check_entry(entry_id)
  if not entry_id:find("^%d+%-%d+$") then
    bad("'" .. entry_id .. "' is not the id of a stream entry")
  end
end

local function check_entries(list)
  for _, delivery in _ipairs(list) do
    check_entry(delivery.entry_id)
  end
end

function validate.check(settlements, hand_backs, deliveries, dead_letter)
  validate.check_queue_name("exchange", dead_letter)
  for _, done in _ipairs(settlements) do
    if not KINDS[done.kind] then
      bad("'" .. done.kind .. "' is no kind of settlement")
    elseif done.kind == "g" and not FATES[done.payload] then
      bad("a job whose group is held back goes to 'front' or 'back' or is to 'fail', not to '" .. done.payload .. "'")
    elseif not RETENTION_MODES[done.remove_mode] then
      bad("'" .. done.remove_mode .. "' is no mode of retention")
    elseif done.entry_id ~= "" then
      check_entry(done.entry_id)
    end
  end
  check_entries(hand_backs)
  check_entries(deliveries)
end

return validate
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

modules.bulk = (function()
--- Creates many jobs of one queue, each as glidemq_addJob does, doing once what they share.

local creation = require("creation")
local events = require("events")
local ids = require("ids")
local shares = require("shares")

local bulk = {}

local function same(job)
  return job
end

--- How many of the jobs need an automatic id; nil when one brings its own, for that may move the counter.
local function automatic(queue, items, whole)
  local count = 0
  for _, item in _ipairs(items) do
    if item.custom_id ~= "" then
      return nil
    elseif not creation.problem(queue, whole(item)) then
      count = count + 1
    end
  end
  return count
end

--- The key of the parent's dependencies, if it is in this queue; the caller notifies a parent of another queue.
local function parent_deps_key(queue, job)
  if job.parent_id == "" then
    return nil
  end
  local end_of_queue = "{" .. job.parent_queue .. "}:"
  return queue:sub(-#end_of_queue) == end_of_queue and queue .. "deps:" .. job.parent_id
end

local function add(queue, job, taken_id, skip_events)
  local job_id, exhausted = creation.job(queue, job, parent_deps_key(queue, job), taken_id)
  if job_id and not skip_events then
    events.emit(queue, "added", job_id, "name", job.job_name)
  end
  return job_id or exhausted
end

--- Create jobs in order; returns for each what glidemq_addJob would reply. `whole` makes the job of an item, if the
--- items are not the jobs themselves; it may reuse the table of the job before.
function bulk.add(queue, items, skip_events, whole)
  whole = whole or same
  local count = automatic(queue, items, whole) or 0
  local free = count > 0 and ids.take_many(queue, count) or {}
  local replies, used, has_shares = {}, 0, false
  for index, item in _ipairs(items) do
    local job = whole(item)
    job.is_of_many = true
    replies[index] = creation.problem(queue, job)
    if not replies[index] then
      used = used + 1
      replies[index] = add(queue, job, free[used], skip_events)
      has_shares = has_shares or job.share ~= nil
    end
  end
  if has_shares then
    shares.feed(queue, 0)
  end
  return replies
end

return bulk
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

modules.dependents = (function()
--- The jobs that wait for a job: the one its record names, and those registered with it.

local flows = require("flows")

local dependents = {}

--- What every key of another queue with our prefix begins with.
function dependents.sibling(queue, name)
  return queue:sub(1, queue:find("{", 1, true)) .. name .. "}:"
end

--- The queue and the id in a job's name among what others wait for; nil when it names no job that shares our prefix.
function dependents.read_member(queue, member)
  local name, job_id = member:match("{([^{}:]+)}:([^{}:]+)$")
  if name and member == dependents.sibling(queue, name) .. job_id then
    return dependents.sibling(queue, name), job_id
  end
  return nil
end

--- The name of the queue whose keys begin so.
function dependents.queue_name(queue)
  return queue:match("{(.*)}:$")
end

--- Call `visit(queue, job_id)` for each; `job` has the fields parentId and parentQueue. Registered ones are left out
--- when the caller knows that there are none.
function dependents.each(queue, job_id, job, registered, visit)
  if (job.parentId or "") ~= "" and (job.parentQueue or "") ~= "" then
    visit(dependents.sibling(queue, job.parentQueue), job.parentId)
  end
  if registered then
    flows.each_registered(queue, job_id, function(parent_queue, parent_id)
      -- Anything but a queue of ours is a name that other clients keep there.
      if parent_queue == dependents.sibling(queue, dependents.queue_name(parent_queue) or "") then
        visit(parent_queue, parent_id)
      end
    end)
  end
end

return dependents
end)()

modules.rules = (function()
--- Trigger rules, with Airflow's names and meanings: the effect of the outcomes so far on a waiting job.

local rules = { RUN = "run", UPSTREAM_FAILED = "upstream_failed", SKIPPED = "skipped" }

--- The rule of a job that has run and waits for the end of its children, however that is. No client may ask for it.
rules.CHILDREN_ENDED = "children_ended"

local RUN, UPSTREAM_FAILED, SKIPPED = rules.RUN, rules.UPSTREAM_FAILED, rules.SKIPPED

local VERDICTS = {}

-- A skipped dependency alone decides nothing before the others have ended: one that fails later outranks it, and the
-- outcome must not depend on which of them ends first.
function VERDICTS.all_success(counts, ended)
  if counts.failed > 0 then
    return UPSTREAM_FAILED
  end
  return ended and (counts.skipped > 0 and SKIPPED or RUN)
end

function VERDICTS.all_failed(counts, ended)
  if counts.success + counts.skipped > 0 then
    return SKIPPED
  end
  return ended and RUN
end

function VERDICTS.all_done(_, ended)
  return ended and RUN
end

function VERDICTS.one_success(counts, ended)
  if counts.success > 0 then
    return RUN
  end
  return ended and (counts.failed > 0 and UPSTREAM_FAILED or SKIPPED)
end

function VERDICTS.one_failed(counts, ended)
  if counts.failed > 0 then
    return RUN
  end
  return ended and SKIPPED
end

function VERDICTS.none_failed(counts, ended)
  if counts.failed > 0 then
    return UPSTREAM_FAILED
  end
  return ended and RUN
end

function VERDICTS.none_failed_min_one_success(counts, ended)
  if counts.failed > 0 then
    return UPSTREAM_FAILED
  end
  return ended and (counts.success > 0 and RUN or SKIPPED)
end

function VERDICTS.always()
  return RUN
end

VERDICTS[rules.CHILDREN_ENDED] = VERDICTS.all_done

--- Whether a node may have a rule of this name.
function rules.is_rule(name)
  return VERDICTS[name] ~= nil and name ~= rules.CHILDREN_ENDED
end

--- Rules that distinguish optional dependencies from others. For the remaining rules, a dependency that counts as
--- completed with any outcome has the same effect.
rules.SINGLE_OUT_OPTIONAL = {
  all_failed = true,
  one_success = true,
  one_failed = true,
  none_failed_min_one_success = true,
}

--- Return the verdict as soon as there is one, false before. `counts` says how many jobs are waited for (`total`), how
--- many ended with `success`, `failed` (or never ran because of a failure) and `skipped`, and, where the rule separates them
--- from the others, how many optional dependencies are `pending` beside these.
--- An unknown or missing rule counts as `all_success`.
function rules.decide(rule, counts)
  local decide = VERDICTS[rule] or VERDICTS.all_success
  local verdict = decide(counts, counts.success + counts.failed + counts.skipped >= counts.total)
  if verdict == RUN and (counts.pending or 0) > 0 and rule ~= "always" then
    return false
  end
  return verdict
end

return rules
end)()

modules.dependencies = (function()
--- The outcomes of a waiting job's dependencies, each counted once.
--- Completed ones are counted where every glide-mq client counts them: `depdone:{member}` and `depsCompleted`. The
--- others have fields of ours beside them: `depend:{member}` says how one ended, `depsFailed` and `depsSkipped` how many.
--- `depweak:{member}` marks an optional one, which counts as completed with any outcome; `depsOptional` says that there
--- are some.

local guarded = require("guarded")
local rules = require("rules")

local dependencies = { WIRING = "__hold__" }

local COUNTER = { failed = "depsFailed", upstream_failed = "depsFailed", skipped = "depsSkipped" }
local MEMBERS_PER_COMMAND = 500
local PENDING = "pending"

--- Members that are not jobs. While `__hold__` is awaited, the job is still being wired. `__rule__` never completes, so
--- completions alone do not release the job.
local WIRING, RULE = dependencies.WIRING, "__rule__"

--- Rules by which a job does not run once all that it waits for have completed.
local NEEDS_MORE = { all_failed = true, one_failed = true }

--- Whether an outcome has one of the four names.
function dependencies.is_outcome(outcome)
  return outcome == "success" or COUNTER[outcome] ~= nil
end

local function forget(key, member, before)
  _redis_call("HDEL", key, "depend:" .. member)
  _redis_call("HINCRBY", key, COUNTER[before], -1)
end

--- Enter how `member` ended; false when that was known. A job that ran again after its failure ends again; one that
--- completed, or counts as completed, has done so for good.
function dependencies.enter(key, member, outcome)
  local known = _redis_call("HMGET", key, "depend:" .. member, "depdone:" .. member, "depweak:" .. member)
  local before = known[1]
  if outcome == before or known[2] and outcome ~= "success" then
    return false
  elseif before then
    forget(key, member, before)
  end
  outcome = known[3] and "success" or outcome
  if outcome ~= "success" then
    _redis_call("HSET", key, "depend:" .. member, outcome)
    _redis_call("HINCRBY", key, COUNTER[outcome], 1)
  elseif _redis_call("HSETNX", key, "depdone:" .. member, 1) == 1 then
    _redis_call("HINCRBY", key, "depsCompleted", 1)
  else
    return false
  end
  return true
end

--- The field that marks a member which counts as completed with any outcome.
function dependencies.weak_field(member)
  return "depweak:" .. member
end

--- Call `visit(members)` for what a job waits for, some hundred at a time.
local function each_portion(queue, job_id, visit)
  local members = guarded.call("SMEMBERS", queue .. "deps:" .. job_id)
  for first = 1, #members, MEMBERS_PER_COMMAND do
    visit({ _unpack(members, first, _math_min(first + MEMBERS_PER_COMMAND - 1, #members)) })
  end
end

--- Take optional dependencies out of the counts, and count those among them that have not ended.
local function single_out_optional(queue, job_id, counts)
  local key, pending = queue .. "job:" .. job_id, 0
  each_portion(queue, job_id, function(members)
    local fields = {}
    for index, member in _ipairs(members) do
      fields[2 * index - 1], fields[2 * index] = dependencies.weak_field(member), "depdone:" .. member
    end
    local values = _redis_call("HMGET", key, _unpack(fields))
    for index = 1, #members do
      if values[2 * index - 1] then
        counts.total = counts.total - 1
        if values[2 * index] then
          counts.success = counts.success - 1
        else
          pending = pending + 1
        end
      end
    end
  end)
  counts.pending = pending
end

--- Return the counts that a rule asks for, and the rule; nil while the job is still being wired. A rule is about the
--- start: once the job has run, it waits for the success of all its children, or for their end where it said so.
function dependencies.counts(queue, job_id)
  local hold, deps = queue .. WIRING, queue .. "deps:" .. job_id
  local fields = _redis_call(
    "HMGET", queue .. "job:" .. job_id,
    "triggerRule", "depsCompleted", "depsFailed", "depsSkipped", "depdone:" .. hold, "processedOn", "depsOptional"
  )
  local held = guarded.call("SMISMEMBER", deps, hold, queue .. RULE)
  local wired = fields[5] and 1 or 0
  if held[1] > wired then
    return nil
  end
  local rule = (not fields[6] or fields[1] == rules.CHILDREN_ENDED) and fields[1] or nil
  local counts = {
    total = _redis_call("SCARD", deps) - held[1] - held[2],
    success = (_tonumber(fields[2]) or 0) - wired,
    failed = _tonumber(fields[3]) or 0,
    skipped = _tonumber(fields[4]) or 0,
  }
  if fields[7] and rules.SINGLE_OUT_OPTIONAL[rule] then
    single_out_optional(queue, job_id, counts)
  end
  return counts, rule
end

--- Forget the failures of jobs that ran again and completed, which a client that only counts completions did not;
--- whether there were any.
function dependencies.correct(queue, job_id)
  local key, found = queue .. "job:" .. job_id, false
  each_portion(queue, job_id, function(members)
    local fields = {}
    for index, member in _ipairs(members) do
      fields[2 * index - 1], fields[2 * index] = "depdone:" .. member, "depend:" .. member
    end
    local values = _redis_call("HMGET", key, _unpack(fields))
    for index, member in _ipairs(members) do
      if values[2 * index - 1] and values[2 * index] then
        forget(key, member, values[2 * index])
        found = true
      end
    end
  end)
  return found
end

--- All that a job waited for counts as done: it was enough, and no client may count it again, should the job wait for
--- children later.
function dependencies.close(queue, job_id)
  local key = queue .. "job:" .. job_id
  each_portion(queue, job_id, function(members)
    local ends, done = {}, {}
    for index, member in _ipairs(members) do
      ends[index], done[2 * index - 1], done[2 * index] = "depend:" .. member, "depdone:" .. member, 1
    end
    _redis_call("HDEL", key, _unpack(ends))
    _redis_call("HSET", key, _unpack(done))
  end)
  _redis_call("HDEL", key, "depsFailed", "depsSkipped")
  _redis_call("HSET", key, "depsCompleted", dependencies.awaited(queue, job_id))
end

--- Remove the dependencies of a job that runs now. A job that waits for the end of its children may wait for them again,
--- so it keeps their outcomes.
function dependencies.let_go(queue, job_id, counts, rule)
  _redis_call("SREM", queue .. "deps:" .. job_id, queue .. RULE)
  if counts.success < counts.total and rule ~= rules.CHILDREN_ENDED then
    dependencies.close(queue, job_id)
  end
end

--- The members that a new job waits for besides jobs: its release if it is held, and its rule if completions are not enough.
function dependencies.obstacles(queue, held, rule)
  local members = {}
  if held then
    members[1] = queue .. WIRING
  end
  if NEEDS_MORE[rule] then
    members[#members + 1] = queue .. RULE
  end
  return members
end

--- Forget that `member` ended, so that it is awaited again.
function dependencies.await(queue, job_id, member)
  local key = queue .. "job:" .. job_id
  local before = _redis_call("HGET", key, "depend:" .. member)
  if before then
    forget(key, member, before)
  end
  if _redis_call("HDEL", key, "depdone:" .. member) == 1 then
    _redis_call("HINCRBY", key, "depsCompleted", -1)
  end
end

--- Hold a job that waits.
function dependencies.hold(queue, job_id)
  _redis_call("SADD", queue .. "deps:" .. job_id, queue .. WIRING)
  dependencies.await(queue, job_id, queue .. WIRING)
end

--- Release a job that is held; whether it was.
function dependencies.release(queue, job_id)
  return _redis_call("SREM", queue .. "deps:" .. job_id, queue .. WIRING) == 1
end

--- Remove the mark of a rule on a job that has no other dependencies.
function dependencies.drop_bare_rule(queue, job_id)
  if dependencies.awaited(queue, job_id) == 1 then
    _redis_call("SREM", queue .. "deps:" .. job_id, queue .. RULE)
  end
end

--- For how many members a job waits, or waited.
function dependencies.awaited(queue, job_id)
  return _redis_call("SCARD", queue .. "deps:" .. job_id)
end

--- Whether anything that a job waited for is yet to end. `outcome_of(member)` is `pending` then.
function dependencies.any_pending(queue, job_id, outcome_of)
  local found = false
  each_portion(queue, job_id, function(members)
    for _, member in _ipairs(members) do
      found = found or outcome_of(member) == PENDING
    end
  end)
  return found
end

--- Return how each of some members ended, by the ledger's three fields of each and by `outcome_of(member)`. If a job waits
--- for the end of its children, completed ones stay completed, and are not read again.
local function outcomes(known, members, rule, outcome_of)
  local found = {}
  for index, member in _ipairs(members) do
    local done, ended, weak = known[3 * index - 2], known[3 * index - 1], known[3 * index]
    local outcome = done and rule == rules.CHILDREN_ENDED and "success" or outcome_of(member)
    outcome = outcome or done and "success" or ended or PENDING
    found[index] = outcome ~= PENDING and weak and "success" or outcome
  end
  return found
end

--- Replace the outcomes of some members, and adjust the counts.
local function reenter(key, members, found, counts)
  local stale, fields = {}, {}
  for index, member in _ipairs(members) do
    local done, ended, outcome = "depdone:" .. member, "depend:" .. member, found[index]
    stale[2 * index - 1], stale[2 * index] = done, ended
    if outcome ~= PENDING then
      local counter, size = COUNTER[outcome] or "depsCompleted", #fields
      fields[size + 1] = outcome == "success" and done or ended
      fields[size + 2] = outcome == "success" and 1 or outcome
      counts[counter] = counts[counter] + 1
    end
  end
  _redis_call("HDEL", key, _unpack(stale))
  if fields[1] then
    _redis_call("HSET", key, _unpack(fields))
  end
end

--- Recount how all that a job waits for ended: by `outcome_of(member)`, or as is known where that knows nothing.
function dependencies.recount(queue, job_id, outcome_of)
  local key, counts = queue .. "job:" .. job_id, { depsCompleted = 0, depsFailed = 0, depsSkipped = 0 }
  local rule = _redis_call("HGET", key, "triggerRule")
  if NEEDS_MORE[rule] then
    _redis_call("SADD", queue .. "deps:" .. job_id, queue .. RULE)
  end
  each_portion(queue, job_id, function(members)
    local fields = {}
    for index, member in _ipairs(members) do
      local last = 3 * index
      fields[last - 2], fields[last - 1], fields[last] = "depdone:" .. member, "depend:" .. member, "depweak:" .. member
    end
    local known = _redis_call("HMGET", key, _unpack(fields))
    reenter(key, members, outcomes(known, members, rule, outcome_of), counts)
  end)
  for name, count in _pairs(counts) do
    _redis_call("HSET", key, name, count)
  end
end

return dependencies
end)()

modules.propagation = (function()
--- Notifies dependents of the outcomes of the jobs they wait for, and applies their trigger rules.
---
--- While a call has a propagation, it is notified of every job that fails for good, wherever that is decided, and so before
--- retention can remove its dependents' keys. The call runs it when its own work is done.

local dependencies = require("dependencies")
local dependents = require("dependents")
local failure = require("failure")
local flows = require("flows")
local placement = require("placement")
local record = require("record")
local release = require("release")
local rules = require("rules")
local shares = require("shares")

local propagation = {}

local REASON = { [rules.UPSTREAM_FAILED] = "upstream failed", [rules.SKIPPED] = "skipped" }

--- An ended job and its dependents, those of its own queue first.
local function ending(queue, job_id, outcome, job, registered)
  local waiting, elsewhere = {}, {}
  dependents.each(queue, job_id, job, registered, function(parent_queue, parent_id)
    local list = parent_queue == queue and waiting or elsewhere
    list[#list + 1] = { queue = parent_queue, job_id = parent_id }
  end)
  for _, other in _ipairs(elsewhere) do
    waiting[#waiting + 1] = other
  end
  return { queue = queue, job_id = job_id, outcome = outcome, waiting = waiting, told = 0 }
end

--- How a job ended, by some fields of its record: `pending` when it has not, nil when it is gone.
local function outcome_in(state, outcome, reason)
  if state == "completed" then
    return "success"
  elseif state == "failed" then
    -- A job that ran after all failed for another reason.
    return outcome and REASON[outcome] == reason and outcome or "failed"
  end
  return state and "pending" or nil
end

--- How a job ended, as its record says: `pending` when it has not, nil when it is gone.
function propagation.outcome_of(queue, job_id)
  return outcome_in(_unpack(_redis_call("HMGET", queue .. "job:" .. job_id, "state", "outcome", "failedReason")))
end

--- A job that ended, as its record says; nil when it has not ended or is gone.
local function recorded(queue, job_id)
  local fields = _redis_call(
    "HMGET", queue .. "job:" .. job_id,
    "state", "outcome", "failedReason", "parentId", "parentQueue"
  )
  local outcome = outcome_in(fields[1], fields[2], fields[3])
  if outcome and outcome ~= "pending" then
    return ending(queue, job_id, outcome, { parentId = fields[4], parentQueue = fields[5] }, true)
  end
  return nil
end

--- Record a job that fails. Its dependents need not be read if they are known.
local function hear(self, queue, job_id)
  local outcome, known = self.verdict or "failed", self.known
  self.verdict = nil
  local job, registered
  if known and known.job_id == job_id and queue == self.queue then
    job, registered = known.job, known.registered
  else
    local fields = _redis_call("HMGET", queue .. "job:" .. job_id, "parentId", "parentQueue")
    job, registered = { parentId = fields[1], parentQueue = fields[2] }, true
  end
  local ended = ending(queue, job_id, outcome, job, registered)
  if ended.waiting[1] then
    self.todo[#self.todo + 1] = ended
  end
end

--- Whether keys of other queues may be on other servers. Who may not ask must be taken to be in a cluster.
local function in_cluster()
  local reply = _redis_pcall("CLUSTER", "MYID")
  return not (_type(reply) == "table" and reply.err and reply.err:find("cluster support disabled", 1, true))
end

--- Record all jobs that fail from now on. `room` is how many jobs that wait may change; with `leaves`, those of other
--- queues are left to the caller; nil finds out whether it is needed.
function propagation.new(queue, now, room, leaves)
  local self = {
    queue = queue, now = now, room = room, leaves = leaves,
    todo = {}, decisions = {}, elsewhere = {}, remaining = {},
  }
  failure.watch(function(failed_queue, job_id)
    hear(self, failed_queue, job_id)
  end)
  return self
end

--- The dependents of the job that is being settled, by its record and by whether any are registered.
function propagation.knows(self, job_id, job, registered)
  self.known = { job_id = job_id, job = job, registered = registered }
end

--- The verdict on a job that waits, as soon as there is one, on which counts, and by which rule. A job that waits for the
--- end of its children reads each of them itself, so its ledger is not read again.
local function judge(queue, job_id)
  local counts, rule = dependencies.counts(queue, job_id)
  if not counts then
    return nil
  end
  local verdict = rules.decide(rule, counts)
  local mixed = counts.success > 0 and counts.failed + counts.skipped > 0
  if verdict and mixed and rule ~= rules.CHILDREN_ENDED and dependencies.correct(queue, job_id) then
    counts, rule = dependencies.counts(queue, job_id)
    return rules.decide(rule, counts), counts, rule
  end
  return verdict, counts, rule
end

--- End a job that must not run, and everything it holds up.
local function end_unrun(self, queue, job_id, verdict)
  local job, reason = record.load(queue, job_id), REASON[verdict]
  self.verdict = verdict
  failure.record(queue, job_id, reason, self.now, "outcome", verdict)
  release.forfeit(queue, job, self.now)
  failure.announce(queue, job_id, reason, self.now)
end

local function note_decision(self, job_id, verdict)
  local decisions = self.decisions
  decisions[#decisions + 1], decisions[#decisions + 2] = job_id, verdict
end

--- Decide about a job that waits for others; whether there is a verdict.
function propagation.decide(self, queue, job_id)
  local verdict, counts, rule = judge(queue, job_id)
  if not verdict then
    return false
  elseif verdict == rules.RUN then
    dependencies.let_go(queue, job_id, counts, rule)
    flows.resume(queue, job_id, _unpack(_redis_call("HMGET", queue .. "job:" .. job_id, "name", "share")))
  else
    end_unrun(self, queue, job_id, verdict)
  end
  note_decision(self, job_id, verdict)
  return true
end

--- Start a job without dependencies left, as its options say.
function propagation.start(self, job_id)
  local queue, key = self.queue, self.queue .. "job:" .. job_id
  local fields = _redis_call("HMGET", key, "name", "delay", "priority", "lifo", "timestamp", "share")
  local state, entry_id = placement.new(queue, job_id, {
    job_name = fields[1],
    delay_ms = _tonumber(fields[2]) or 0,
    priority = _tonumber(fields[3]) or 0,
    lifo = fields[4] == "1",
    timestamp_ms = _tonumber(fields[5]) or self.now,
    share = fields[6] or nil,
  })
  _redis_call("HSET", key, "state", state, _unpack(entry_id and { "entry", entry_id } or {}))
  if fields[6] then
    shares.feed(queue, 0)
  end
  note_decision(self, job_id, rules.RUN)
end

--- Tell one job that `member` ended; whether that changed anything.
local function notify(self, queue, job_id, member, outcome)
  local key = queue .. "job:" .. job_id
  local job = { state = _redis_call("HGET", key, "state") }
  if not job.state or record.has_ended(job) then
    return false
  end
  local changed = dependencies.enter(key, member, outcome)
  local decided = job.state == "waiting-children" and propagation.decide(self, queue, job_id)
  return changed or decided
end

--- Leave a job to the caller.
local function leave(self, queue, job_id, member, outcome)
  local elsewhere = self.elsewhere
  local size = #elsewhere
  elsewhere[size + 1], elsewhere[size + 2] = dependents.queue_name(queue), job_id
  elsewhere[size + 3], elsewhere[size + 4] = member, outcome
end

--- Pass on news from another queue.
function propagation.news(self, told)
  notify(self, self.queue, told.dependent, told.member, told.outcome)
end

--- Pass on how a job ended, if it has.
function propagation.ended(self, job_id)
  self.todo[#self.todo + 1] = recorded(self.queue, job_id)
end

--- Notify a job that `member` has completed, as any client would; if it has a rule, that is applied.
function propagation.completed(self, queue, job_id, member)
  if self.leaves and queue ~= self.queue then
    leave(self, queue, job_id, member, "success")
    return
  end
  flows.notify(queue, job_id, member, function()
    propagation.decide(self, queue, job_id)
  end)
end

--- Notify all dependents of a job; false if the bound on changes is reached before all are notified.
local function tell_all(self, ended)
  local member = ended.queue .. ended.job_id
  while ended.told < #ended.waiting do
    local other = ended.waiting[ended.told + 1]
    if self.leaves == nil and other.queue ~= self.queue then
      self.leaves = in_cluster()
    end
    if self.leaves and other.queue ~= self.queue then
      leave(self, other.queue, other.job_id, member, ended.outcome)
    elseif self.room == 0 then
      return false
    elseif notify(self, other.queue, other.job_id, member, ended.outcome) then
      self.room = self.room - 1
    end
    ended.told = ended.told + 1
  end
  return true
end

--- Leave to the caller what exceeds the bound: a job of this queue by its id, if it still exists.
local function put_off(self, ended)
  if ended.queue == self.queue and _redis_call("EXISTS", ended.queue .. "job:" .. ended.job_id) == 1 then
    self.remaining[#self.remaining + 1] = ended.job_id
    return
  end
  for index = ended.told + 1, #ended.waiting do
    local other = ended.waiting[index]
    leave(self, other.queue, other.job_id, ended.queue .. ended.job_id, ended.outcome)
  end
end

--- Pass on the outcomes recorded so far, then those of jobs that end because of them, the nearest first.
function propagation.run(self)
  local next_one = 1
  while self.todo[next_one] and tell_all(self, self.todo[next_one]) do
    next_one = next_one + 1
  end
  for index = next_one, #self.todo do
    put_off(self, self.todo[index])
  end
  self.todo = {}
end

--- The same, for the last time. Returns the decisions, the notifications for other queues, and the jobs whose dependents remain.
function propagation.finish(self)
  propagation.run(self)
  failure.watch(nil)
  return { self.decisions, self.elsewhere, self.remaining }
end

return propagation
end)()

modules.children = (function()
--- Adds children to a running job.

local bulk = require("bulk")
local dependents = require("dependents")
local propagation = require("propagation")
local rules = require("rules")
local validate = require("validate")

local children = {}

local ROOM = 100

function children.check(claim, jobs)
  for place, job in _ipairs(jobs) do
    local id = job.custom_id
    if id == "" or id == claim.job_id or job.parent_id ~= "" then
      validate.refuse("addChildren", "child " .. place .. " needs an id of its own and no parent")
    end
  end
end

--- Make a job that was there a child: it may be one already, or be another's, and may have ended.
local function adopt(queue, claim, job_id, outcomes)
  _redis_call("SADD", queue .. "deps:" .. claim.job_id, queue .. job_id)
  if _redis_call("HGET", queue .. "job:" .. job_id, "parentId") ~= claim.job_id then
    _redis_call("SADD", queue .. "parents:" .. job_id, queue .. claim.job_id)
  end
  propagation.ended(outcomes, job_id)
end

--- Add the jobs, once each; returns what glidemq_addJob would reply to each. With `until_ended`, the job waits for their
--- end, however that is.
function children.add(queue, claim, jobs, now, until_ended)
  if until_ended then
    _redis_call("HSET", queue .. "job:" .. claim.job_id, "triggerRule", rules.CHILDREN_ENDED)
  end
  for _, job in _ipairs(jobs) do
    job.parent_id, job.parent_queue = claim.job_id, dependents.queue_name(queue)
  end
  local replies = bulk.add(queue, jobs, false)
  local outcomes = propagation.new(queue, now, ROOM, true)
  for index, reply in _ipairs(replies) do
    if reply == "duplicate" then
      adopt(queue, claim, jobs[index].custom_id, outcomes)
    end
  end
  propagation.finish(outcomes)
  return replies
end

return children
end)()

modules.lease = (function()
--- The fence: a job belongs to the worker that activated it, until it leaves the active state or is activated again.

local numbers = require("numbers")

local lease = {}

lease.RENEWAL = { "state", "processedOn", "stalledCount", "revoked" }
lease.COMPLETION = {
  "state", "processedOn", "stalledCount", "groupKey", "orderingSeq", "orderingKey", "parentId", "parentQueue",
}
lease.OTHER = {
  "state", "processedOn", "stalledCount", "groupKey", "orderingSeq", "orderingKey", "priority", "name",
  "depsCompleted", "depsFailed", "depsSkipped", "parentId", "parentQueue",
}

--- Some fields of the job of `claim`, and whether its last activation was the one claimed: that of `taken_ms`, after
--- `stalled_count` takeovers.
function lease.look(queue, claim, fields)
  -- A key that is not a hash is not a job: it must not keep the others of its batch from being settled.
  local values = _redis_pcall("HMGET", queue .. "job:" .. claim.job_id, _unpack(fields))
  -- Of this size from the start: it would grow three times.
  local job = { state = nil, processedOn = nil, stalledCount = nil, groupKey = nil, parentId = nil }
  for index = 1, #fields do
    local value = values[index]
    if value then
      job[fields[index]] = value
    end
  end
  local same = _tonumber(job.processedOn) == claim.taken_ms
    and (numbers.whole(job.stalledCount) or 0) == claim.stalled_count
  return job, same
end

return lease
end)()

modules.holding = (function()
--- Keeps jobs of a graph from starting, and lets them go.

local dependencies = require("dependencies")
local propagation = require("propagation")

local holding = {}

--- Hold one job; returns whether it is held, which requires that it waits for others, and not for its own children.
function holding.hold(queue, job_id)
  local fields = _redis_call("HMGET", queue .. "job:" .. job_id, "state", "processedOn")
  if fields[1] ~= "waiting-children" or fields[2] then
    return false
  end
  dependencies.hold(queue, job_id)
  return true
end

--- Decide about a waiting job by its dependencies.
function holding.go_on(outcomes, job_id)
  if dependencies.awaited(outcomes.queue, job_id) == 0 then
    propagation.start(outcomes, job_id)
  else
    propagation.decide(outcomes, outcomes.queue, job_id)
  end
end

--- Release one job; it is passed over when it is not held.
function holding.release(outcomes, job_id)
  local queue = outcomes.queue
  local waits = _redis_call("HGET", queue .. "job:" .. job_id, "state") == "waiting-children"
  if waits and dependencies.release(queue, job_id) then
    holding.go_on(outcomes, job_id)
  end
end

return holding
end)()

modules.edges = (function()
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
    local job_id = _table_remove(todo)
    if job_id == wanted then
      return true
    elseif not seen[job_id] then
      seen[job_id] = true
      seen.count = seen.count + _redis_call("SCARD", queue .. "deps:" .. job_id)
      if seen.count > MOST_READ then
        return nil
      end
      for _, member in _ipairs(_redis_call("SMEMBERS", queue .. "deps:" .. job_id)) do
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
  for _, other in _ipairs(on) do
    if _redis_call("EXISTS", queue .. "job:" .. other.job_id) == 0 then
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
  if _redis_call("SADD", queue .. "deps:" .. job_id, queue .. other_id) == 0 then
    return
  end
  local names = _redis_call("HMGET", queue .. "job:" .. other_id, "parentId", "parentQueue")
  if names[1] ~= job_id or names[2] ~= dependents.queue_name(queue) then
    _redis_call("SADD", queue .. "parents:" .. other_id, queue .. job_id)
  end
end

local function wait_no_more(queue, job_id, other_id)
  local key, other, member = queue .. "job:" .. job_id, queue .. "job:" .. other_id, queue .. other_id
  if _redis_call("SREM", queue .. "deps:" .. job_id, member) == 0 then
    return
  end
  dependencies.await(queue, job_id, member)
  if _redis_call("HDEL", key, dependencies.weak_field(member)) == 1 then
    _redis_call("HINCRBY", key, "depsOptional", -1)
  end
  _redis_call("SREM", queue .. "parents:" .. other_id, queue .. job_id)
  local names = _redis_call("HMGET", other, "parentId", "parentQueue")
  if names[1] == job_id and names[2] == dependents.queue_name(queue) then
    _redis_call("HDEL", other, "parentId", "parentQueue")
  end
end

--- Apply the change; returns the function's reply.
function edges.change(queue, job_id, on, off, now)
  local fields = _redis_call("HMGET", queue .. "job:" .. job_id, "state", "processedOn", "moveState")
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
  for _, other in _ipairs(on) do
    wait_for(queue, job_id, other.job_id)
  end
  for _, other in _ipairs(off) do
    wait_no_more(queue, job_id, other.job_id)
  end
  for _, other in _ipairs(on) do
    propagation.ended(outcomes, other.job_id)
  end
  propagation.run(outcomes)
  if _redis_call("HGET", queue .. "job:" .. job_id, "state") == "waiting-children" then
    dependencies.drop_bare_rule(queue, job_id)
    holding.go_on(outcomes, job_id)
  end
  local _, elsewhere, remaining = _unpack(propagation.finish(outcomes))
  return { "ok", "", elsewhere, remaining }
end

return edges
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

modules.schedulers = (function()
--- Repeatable jobs: an index of when each is due for evaluation, their last jobs, and their history.

local guarded = require("guarded")
local numbers = require("numbers")
local overdue = require("overdue")
local record = require("record")
local revocation = require("revocation")

local schedulers = {}

local HISTORY = 20
local DAY_S = 86400
local HISTORY_S, HISTORY_AFTER_S = 400 * DAY_S, 30 * DAY_S
local MOST_SEARCHED = 1000

--- Whether the index has to be compared with the entries, which other clients write without it.
function schedulers.needs_full_look(queue)
  local entries = _redis_call("HLEN", queue .. "schedulers")
  local indexed = guarded.call("ZCARD", queue .. "schedulers:due")
  if entries == 0 and indexed == 0 then
    return false
  end
  return entries ~= indexed or _redis_call("EXISTS", queue .. "schedulers:looked") == 0
end

--- When the entries need their next evaluation, epoch ms; 0 for at once, -1 for never.
function schedulers.next_look(queue)
  if schedulers.needs_full_look(queue) then
    return 0
  end
  local first = guarded.call("ZRANGE", queue .. "schedulers:due", 0, 0, "WITHSCORES")
  return first[2] and _math_max(0, _tonumber(first[2])) or -1
end

--- Record the outcome of a run.
function schedulers.note(queue, name, due_ms, now_ms, job_id, outcome)
  local key = queue .. "schedulers:history:" .. name
  guarded.call("LPUSH", key, _cjson_encode({ due_ms, now_ms, job_id, outcome }))
  _redis_call("LTRIM", key, 0, HISTORY - 1)
  _redis_call("EXPIRE", key, HISTORY_S)
end

--- Store an entry and when it is due for evaluation; an empty entry stays as it is, `drop` goes.
function schedulers.put(queue, name, entry, look_ms)
  local entries, due = queue .. "schedulers", queue .. "schedulers:due"
  if entry == "drop" then
    guarded.call("ZREM", due, name)
    _redis_call("EXPIRE", queue .. "schedulers:history:" .. name, HISTORY_AFTER_S)
    return _redis_call("HDEL", entries, name)
  elseif entry ~= "" then
    _redis_call("HSET", entries, name, entry)
  end
  guarded.call("ZADD", due, look_ms, name)
  return 1
end

--- Return the state of a job: `open`, `ended` or `gone`, and when it ended. One that has expired ended then, whether a
--- worker has read it since or not.
function schedulers.fate(queue, job_id, now)
  local job = record.load(queue, job_id)
  if not job or not job.state then
    return "gone", 0
  elseif record.has_ended(job) then
    return "ended", _tonumber(_redis_call("HGET", queue .. "job:" .. job_id, "finishedOn") or nil) or 0
  elseif overdue.is(job, now) then
    return "ended", numbers.finite(job.expireAt)
  end
  return "open", 0
end

--- Whether a run has to wait for the job of the one before. One that must be replaced is revoked instead.
function schedulers.holds_back(queue, run, now_ms)
  if run.previous == "" or run.overlap == "allow" or schedulers.fate(queue, run.previous, now_ms) ~= "open" then
    return false
  elseif run.overlap == "replace" then
    revocation.revoke(queue, run.previous, now_ms, "workers")
    return false
  end
  return true
end

local function is_of(queue, job_id, name)
  return _redis_call("HGET", queue .. "job:" .. job_id, "schedulerName") == name
end

--- Return the state of the job of a scheduler whose entry does not name it: `open` unless all unfinished jobs were
--- read, and none belongs to that scheduler.
local function searched(queue, name)
  local waiting = _redis_call("XRANGE", queue .. "stream", "-", "+", "COUNT", MOST_SEARCHED)
  local later = _redis_call("ZRANGE", queue .. "scheduled", 0, MOST_SEARCHED - 1)
  local suspended = _redis_call("ZRANGE", queue .. "suspended", 0, MOST_SEARCHED - 1)
  local lists = {}
  for _, list in _ipairs({ "lifo", "priority" }) do
    lists[#lists + 1] = _redis_call("LRANGE", queue .. list, 0, MOST_SEARCHED - 1)
  end
  if (_tonumber(_redis_call("GET", queue .. "list-active")) or 0) > 0 or #waiting == MOST_SEARCHED then
    return "open"
  end
  for _, entry in _ipairs(waiting) do
    for index = 1, #entry[2], 2 do
      if entry[2][index] == "jobId" and is_of(queue, entry[2][index + 1], name) then
        return "open"
      end
    end
  end
  for _, found in _ipairs({ later, suspended, lists[1], lists[2] }) do
    if #found == MOST_SEARCHED then
      return "open"
    end
    for _, job_id in _ipairs(found) do
      if is_of(queue, job_id, name) then
        return "open"
      end
    end
  end
  return "gone"
end

--- Return the state of the job that an entry waits for, and when it ended; empty without one.
function schedulers.awaited(queue, name, text, now)
  local readable, entry = _pcall(_cjson_decode, text)
  if not readable or _type(entry) ~= "table" then
    return "", 0
  end
  local own = _type(entry.oq) == "table" and entry.oq or {}
  if _type(own.job) == "string" and own.job ~= "" then
    return schedulers.fate(queue, own.job, now)
  elseif entry.repeatAfterComplete and entry.nextRun == 0 and not own.paused then
    return searched(queue, name), 0
  end
  return "", 0
end

return schedulers
end)()

modules.history = (function()
--- What happened to a job besides success: failed attempts, takeovers, manual retries and cancels, in its record.

local numbers = require("numbers")

local history = {}

local MOST_ENTRIES = 20
local MOST_BYTES = 32768
local LOG_LINES = 5
local LONGEST_LINE = 500

--- The stored entries; none when another client damaged them.
local function load(key)
  local readable, entries = _pcall(_cjson_decode, _redis_call("HGET", key, "history") or "[]")
  return readable and _type(entries) == "table" and entries or {}
end

--- The entries as text of bounded size: the tracebacks of the oldest go first, then the entries themselves.
local function encode(entries)
  local text = _cjson_encode(entries)
  for index = 1, #entries do
    if #text <= MOST_BYTES then
      break
    end
    entries[index].traceback = nil
    text = _cjson_encode(entries)
  end
  while #text > MOST_BYTES and #entries > 1 do
    _table_remove(entries, 1)
    text = _cjson_encode(entries)
  end
  return text
end

local function last_lines(queue, job_id)
  local lines = _redis_pcall("LRANGE", queue .. "log:" .. job_id, -LOG_LINES, -1)
  if lines.err or not lines[1] then
    return nil
  end
  for index, line in _ipairs(lines) do
    lines[index] = line:sub(1, LONGEST_LINE)
  end
  return lines
end

--- Append `entry` to the history of a job that is there. That of an attempt,
--- which has a kind, is given its number, its start and the last log lines.
function history.append(queue, job_id, entry)
  local key = queue .. "job:" .. job_id
  if _redis_call("TYPE", key).ok ~= "hash" then
    return
  end
  if entry.kind then
    local stored = _redis_call("HMGET", key, "attemptsMade", "processedOn")
    entry.attempt = (numbers.whole(stored[1]) or 0) + 1
    entry.started = entry.started or numbers.whole(stored[2])
    entry.logs = last_lines(queue, job_id)
  end
  local entries = load(key)
  entries[#entries + 1] = entry
  while #entries > MOST_ENTRIES do
    _table_remove(entries, 1)
  end
  -- What another client stored may be decodable and still not encodable, such as NaN: it must not fail the caller.
  local encodable, text = _pcall(encode, entries)
  _redis_call("HSET", key, "history", encodable and text or encode({ entry }))
end

return history
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

modules.moving = (function()
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
  orderingSeq = true, entry = true, strayEntry = true, strayElement = true, movedFrom = true,
  movingTo = true, movedBy = true, moveToken = true, moveState = true, moveDue = true, moveDelay = true,
  moveReads = true, movedAt = true,
}

local function decide(queue, token, decision)
  _redis_call("SET", queue .. "moved:" .. token, decision, "EX", REMEMBERED_S)
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
  local score = _redis_call("ZSCORE", queue .. "scheduled", job_id)
  if not score then
    return nil
  end
  _redis_call("ZREM", queue .. "scheduled", job_id)
  local _, due = scheduled.split(_tonumber(score))
  return due
end

take_out.prioritized = take_out.delayed

function take_out.failed(queue, job_id)
  local score = _redis_call("ZSCORE", queue .. "failed", job_id)
  _redis_call("ZREM", queue .. "failed", job_id)
  return _tonumber(score or nil) or 0
end

--- Fail a job that was cancelled on its way, and decide about those that wait for it.
local function revoke(queue, job_id, now)
  local outcomes = propagation.new(queue, now, MOST_DECIDED)
  release.revoke(queue, job_id, record.load(queue, job_id), now)
  propagation.finish(outcomes)
end

--- Give a job that is held its place.
local function place(queue, job_id, state, due, now)
  _redis_call("HSET", queue .. "job:" .. job_id, "state", state)
  local job = record.load(queue, job_id)
  if state == "failed" then
    _redis_call("ZADD", queue .. "failed", _string_format("%.0f", due), job_id)
  elseif job.revoked then
    revoke(queue, job_id, now)
  elseif state == "waiting" then
    placement.ready(queue, job_id, job)
  else
    placement.later(queue, job_id, job, due)
  end
end

local function hold(queue, job_id, now)
  guarded.call("ZADD", queue .. "moving", _string_format("%.0f", now), job_id)
  _redis_call("HSET", queue .. "job:" .. job_id, "state", "waiting-children")
  guarded.call("SADD", queue .. "deps:" .. job_id, queue .. dependencies.WIRING)
end

local function let_go(queue, job_id)
  _redis_call("HDEL", queue .. "job:" .. job_id, _unpack(NOTED))
  guarded.call("ZREM", queue .. "moving", job_id)
end

local function list_of(key)
  return guarded.call("LRANGE", key, 0, -1)
end

--- All that the target needs: fields, log lines, signals, dependents and dependencies; and its digest.
local function content(queue, job_id)
  local key, parents, deps = queue .. "job:" .. job_id, {}, {}
  local named = _redis_call("HMGET", key, "parentId", "parentQueue")
  dependents.each(queue, job_id, { parentId = named[1] or "", parentQueue = named[2] or "" }, true, function(other, id)
    parents[#parents + 1] = other .. id
  end)
  for _, member in _ipairs(guarded.call("SMEMBERS", queue .. "deps:" .. job_id)) do
    if member ~= queue .. dependencies.WIRING then
      deps[#deps + 1] = member
    end
  end
  local fields, flat = {}, _redis_call("HGETALL", key)
  for index = 1, #flat, 2 do
    if not LEFT_BEHIND[flat[index]] then
      fields[#fields + 1], fields[#fields + 2] = flat[index], flat[index + 1]
    end
  end
  local found = { fields, list_of(queue .. "log:" .. job_id), list_of(queue .. "signals:" .. job_id), parents, deps }
  return found, redis.sha1hex(_cjson_encode(found))
end

--- What the function replies about a job that is held. Each reading has a number: the target keeps the last one.
local function carried(queue, job_id)
  local key = queue .. "job:" .. job_id
  local reads = _redis_call("HINCRBY", key, "moveReads", 1)
  local noted = _redis_call("HMGET", key, "moveToken", "moveState", "moveDue", "moveDelay")
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
  local known = _redis_call("HMGET", key, "movingTo", "flow")
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
  _redis_call(
    "HSET", key, "movingTo", target, "moveToken", token, "moveState", job.state, "moveDue", _string_format("%.0f", due)
  )
  if delay ~= "" then
    _redis_call("HSET", key, "moveDelay", delay)
  end
  return carried(queue, job_id)
end

local function write_parents(queue, job_id, parents)
  local parent_ids, parent_queues = {}, {}
  for _, parent in _ipairs(parents) do
    local name, parent_id = parent:match("{(.*)}:([^:]*)$")
    if name then
      parent_ids[#parent_ids + 1], parent_queues[#parent_queues + 1] = parent_id, name
    end
  end
  if parent_ids[1] then
    chunks.call(parents, "SADD", queue .. "parents:" .. job_id)
    _redis_call(
      "HSET", queue .. "job:" .. job_id,
      "parentIds", _cjson_encode(parent_ids), "parentQueues", _cjson_encode(parent_queues)
    )
  end
end

--- Remove the fields that the job has lost at the source since it was carried over before.
local function forget_lost(key, fields)
  local kept = { revoked = true }
  for index = 1, #fields, 2 do
    kept[fields[index]] = true
  end
  for _, name in _ipairs(_redis_call("HKEYS", key)) do
    if not kept[name] and not LEFT_BEHIND[name] then
      _redis_call("HDEL", key, name)
    end
  end
end

--- Write a job that is on its way. Who was registered here as waiting for it, or cancelled it here, stays known.
local function write(queue, job_id, token, source, now, job)
  local key = queue .. "job:" .. job_id
  forget_lost(key, job.fields)
  _redis_call(
    "HSET", key, "movedBy", token, "movedFrom", source, "moveReads", job.reads, "movedAt", _string_format("%.0f", now),
    "moveState", job.state, "moveDue", _string_format("%.0f", job.due)
  )
  if job.delay ~= "" then
    _redis_call("HSET", key, "moveDelay", job.delay)
  end
  _redis_call("UNLINK", queue .. "log:" .. job_id, queue .. "signals:" .. job_id, queue .. "deps:" .. job_id)
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
  local noted = _redis_call("HMGET", queue .. "job:" .. job_id, "movedBy", "moveReads")
  local is_held = noted[1] == token
  local decided = _redis_call("GET", queue .. "moved:" .. token)
  if decided then
    if is_held and job.reads > (_tonumber(noted[2]) or 0) then
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
  local noted = _redis_call("HMGET", key, "moveState", "moveDue", "moveDelay")
  local delay = _tonumber(noted[3] or nil)
  if not delay then
    return noted[1], _tonumber(noted[2]) or 0
  end
  _redis_call("HSET", key, "delay", noted[3])
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
  local noted = _redis_call("HMGET", key, "movedBy", "movedFrom", "tags", "tracked", "name")
  if noted[1] ~= token then
    if not noted[1] then
      guarded.call("ZREM", queue .. "moving", job_id)
    end
    return 0
  elseif not kept then
    guarded.call("ZREM", queue .. "moving", job_id)
    removal.remove(queue, job_id)
    return 1
  end
  tags.enter(queue, job_id, tags.read(noted[3] or nil), now)
  if noted[4] then
    guarded.call("ZADD", queue .. "tracked", _tonumber(noted[4]) or now, job_id)
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
  local value = _redis_call("HGET", key, from)
  if value then
    _redis_call("HSET", key, to, value)
    _redis_call("HDEL", key, from)
  end
end

--- Have a job wait for one under its new name.
function moving.rename(queue, job_id, from, to)
  if _redis_call("SREM", queue .. "deps:" .. job_id, from) == 0 then
    return 0
  end
  _redis_call("SADD", queue .. "deps:" .. job_id, to)
  for _, prefix in _ipairs({ "depdone:", "depend:", "depweak:" }) do
    rename_field(queue .. "job:" .. job_id, prefix .. from, prefix .. to)
  end
  return 1
end

--- Drop a job that the target holds, or put back one that was refused there; returns the function's reply.
function moving.finish(queue, job_id, token, arrived, digest, now)
  local key = queue .. "job:" .. job_id
  local noted = _redis_call("HMGET", key, "moveToken", "moveState", "moveDue", "tags")
  if noted[1] ~= token then
    -- Who removes a job leaves no decision.
    return _redis_call("EXISTS", queue .. "moved:" .. token) == 1 and "over" or "removed"
  elseif not arrived then
    dependencies.release(queue, job_id)
    place(queue, job_id, noted[2], _tonumber(noted[3]) or 0, now)
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

modules.entries = (function()
--- Many entries of the stream at a time: read, claimed, and acknowledged.

local chunks = require("chunks")

local entries = {}

local MOST_CLAIMED = 1000

--- Read up to `count` new entries for a consumer. A stream that was deleted gets its group again.
function entries.read(queue, group, consumer, count)
  local key = queue .. "stream"
  local function read()
    return _redis_pcall("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">")
  end
  local reply = read()
  if reply and reply.err and reply.err:find("NOGROUP", 1, true) then
    _redis_call("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
    reply = read()
  end
  if not reply then
    return {}
  end
  return reply.err and _error(reply) or reply[1][2]
end

--- Return which entries of the first `count` deliveries are still pending in the group, as a set; this consumer now has them.
function entries.claim(queue, group, consumer, deliveries, count)
  local held = {}
  for first = 1, count, MOST_CLAIMED do
    local last = _math_min(first + MOST_CLAIMED - 1, count)
    -- Room for one entry, which is the usual number, so that the table does not grow.
    local words = { "XCLAIM", queue .. "stream", group, consumer, "0", nil, nil }
    for index = first, last do
      words[index - first + 6] = deliveries[index].entry_id
    end
    words[last - first + 7] = "JUSTID"
    local claimed = _redis_pcall(_unpack(words))
    for index = 1, claimed.err and 0 or #claimed do
      held[claimed[index]] = true
    end
  end
  return held
end

--- Acknowledge one entry and remove it from the stream; false if it was not pending.
function entries.drop(queue, group, entry_id)
  local held = _redis_call("XACK", queue .. "stream", group, entry_id) == 1
  _redis_call("XDEL", queue .. "stream", entry_id)
  return held
end

--- Acknowledge entries and remove them from the stream.
function entries.settle(queue, group, entry_ids)
  local key = queue .. "stream"
  chunks.call(entry_ids, "XACK", key, group)
  chunks.call(entry_ids, "XDEL", key)
end

return entries
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

modules.exchange = (function()
--- One worker's exchange: collects commands that many jobs need, to send each once.

local entries = require("entries")
local lists = require("lists")
local metrics = require("metrics")
local numbers = require("numbers")
local retention = require("retention")

local exchange = {}

--- An exchange for `who.consumer` of `who.group` at `now`. `outcomes` is the propagation of what it settles; `dead_letter`
--- names the queue of dead letters, which are kept for the caller to add with `cluster`; `skip_events` and
--- `skip_metrics` are those of completions.
function exchange.new(queue, now, who)
  -- In one piece: a table that grows field by field is allocated again four times.
  return {
    queue = queue, now = now, group = who.group, consumer = who.consumer,
    outcomes = who.outcomes, cluster = who.cluster, dead_letter = who.dead_letter,
    skip_events = who.skip_events, skip_metrics = who.skip_metrics,
    started = {}, letters = {}, entries = {}, listed = {}, finished = {}, count = 0, duration = 0,
    rule = nil, has_shares = nil,
    entry = { id = "", group = who.group, consumer = who.consumer, unfinished = true },
  }
end

--- Take a job off the worker: acknowledge its entry, or count a list job out.
function exchange.leave(self, job_id, entry_id)
  if entry_id == "" then
    self.listed[#self.listed + 1] = job_id
  else
    self.entries[#self.entries + 1] = entry_id
  end
end

local function enter_finished(self)
  local finished = self.finished
  if not finished[1] then
    return
  end
  local members, score = {}, numbers.text(self.now)
  for index = 1, #finished do
    members[2 * index - 1], members[2 * index] = score, finished[index]
  end
  _redis_call("ZADD", self.queue .. "completed", _unpack(members))
  retention.apply(self.queue, "completed", finished, self.now, self.rule)
  self.finished = {}
end

local function same_rule(one, other)
  return one.remove_mode == other.remove_mode
    and one.remove_count == other.remove_count
    and one.remove_age_s == other.remove_age_s
end

--- Count a completed job and enter it among its like, under the rule of retention that came with it.
function exchange.completed(self, done)
  local size = #self.finished
  if self.rule and (size == 1000 or not same_rule(self.rule, done)) then
    enter_finished(self)
    size = 0
  end
  self.rule = done
  self.finished[size + 1] = done.job_id
  if not self.skip_metrics then
    self.count = self.count + 1
    self.duration = self.duration + metrics.duration(self.now, done.taken_ms)
  end
end

--- Send the collected commands.
function exchange.flush(self)
  enter_finished(self)
  if self.count > 0 then
    metrics.add(self.queue, "completed", self.now, self.count, self.duration)
    self.count, self.duration = 0, 0
  end
  if self.entries[1] then
    entries.settle(self.queue, self.group, self.entries)
    self.entries = {}
  end
  if self.listed[1] then
    lists.leave_all(self.queue, self.listed)
    self.listed = {}
  end
end

return exchange
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

modules.dead_letters = (function()
--- Dead letters: the report of a job that failed for good, as a job of another queue, for inspection or replay.

local bulk = require("bulk")
local dependents = require("dependents")
local guarded = require("guarded")

local dead_letters = {}

local LONGEST_ID = 256
local MOST_OVERDUE = 20

--- A payload inside other JSON: as it is when it is JSON, since decoding and encoding it again would change numbers and empty
--- lists; else, as when a codec wrote it, as a text.
local function embedded(payload)
  local strict = _cjson_new()
  strict.decode_invalid_numbers(false)
  return _pcall(strict.decode, payload) and payload or _cjson_encode(payload)
end

local function envelope(queue_name, job_id, payload, reason, attempts)
  return '{"originalQueue":' .. _cjson_encode(queue_name)
    .. ',"originalJobId":' .. _cjson_encode(job_id)
    .. ',"data":' .. embedded(payload)
    .. ',"failedReason":' .. _cjson_encode(reason)
    .. ',"attemptsMade":' .. _string_format("%.0f", attempts) .. "}"
end

--- The same for each letter about one run of one job.
local function id_of(queue_name, job_id, processed_on)
  local id = _table_concat({ "dead", queue_name, job_id, processed_on }, ".")
  return #id <= LONGEST_ID and id or "dead." .. redis.sha1hex(id)
end

local function add(self, name, data)
  local there = dependents.sibling(self.queue, self.dead_letter)
  local letter = {
    job_name = name, data = data, opts = "{}", timestamp_ms = self.now, delay_ms = 0, priority = 0, max_attempts = 0,
    parent_id = "", parent_queue = "", ordering_key = "", cost = 0, ttl_ms = 0, custom_id = "",
  }
  local reply = bulk.add(there, { letter }, false)[1]
  return reply:sub(1, 4) ~= "ERR:"
end

--- Keep a letter until the caller, or the worker that recovers overdue ones, has added it and struck it off.
local function keep(self, letter_id, name, data)
  local letter = _cjson_encode({ self.dead_letter, letter_id, name, data })
  guarded.call("ZADD", self.queue .. "outbox", _string_format("%.0f", self.now), letter)
  self.letters[#self.letters + 1] = letter
end

--- Hand out letters that were kept before a time, and are still there: the caller that had to add them may have died. Returns
--- whether there may be more.
function dead_letters.overdue(self, before_ms)
  local latest = _string_format("%.0f", before_ms)
  local found = guarded.call("ZRANGEBYSCORE", self.queue .. "outbox", "-inf", latest, "LIMIT", 0, MOST_OVERDUE)
  for _, letter in _ipairs(found) do
    self.letters[#self.letters + 1] = letter
  end
  return #found == MOST_OVERDUE
end

--- Add a dead letter about a job that is about to fail for good, unless it was revoked: a cancelled job needs no report.
--- `job` has the field processedOn; `counted` says how many of its attempts were counted for this failure. What cannot be
--- added here, as in a cluster, where the other queue may be on another server, is kept.
function dead_letters.send(self, job_id, job, reason, counted)
  if self.dead_letter == "" then
    return
  end
  local fields = _redis_call("HMGET", self.queue .. "job:" .. job_id, "name", "data", "revoked", "attemptsMade")
  if fields[3] == "1" then
    return
  end
  local queue_name, name = dependents.queue_name(self.queue), fields[1] or ""
  local attempts = (_tonumber(fields[4]) or 0) - counted
  local data = envelope(queue_name, job_id, fields[2] or "", reason, attempts)
  local fine, added = true, false
  if not self.cluster then
    -- A queue over there that is broken must not keep the job from failing here.
    fine, added = _pcall(add, self, name, data)
  end
  if not (fine and added) then
    keep(self, id_of(queue_name, job_id, job.processedOn or ""), name, data)
  end
end

return dead_letters
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

modules.failed_attempt = (function()
--- A failed attempt, and the dead letter when it was the last.

local dead_letters = require("dead_letters")
local retry = require("retry")

local failed_attempt = {}

--- Returns the letter for the job's new state: `r` to be retried, `f` failed.
function failed_attempt.attempt(self, done, job, reason)
  done.failed_reason, done.now_ms, done.backoff_ms = reason, self.now, done.wait_ms
  if retry.again(self.queue, done, job) then
    return "r"
  end
  dead_letters.send(self, done.job_id, job, reason, 1)
  retry.give_up(self.queue, done, job)
  return "f"
end

return failed_attempt
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

modules.interruption = (function()
--- Ends the attempt of a job that is not done: by the kind of its settlement, and with the letter for the new state of
--- it. The effects are those of glidemq_moveActiveToDelayed, _moveToWaitingChildren, _suspend and _rateLimitGroup.

local dead_letters = require("dead_letters")
local deferral = require("deferral")
local failed_attempt = require("failed_attempt")
local group_limit = require("group_limit")
local propagation = require("propagation")

local NO_GROUP = "Cannot rate limit group: no_group"

local interruption = {}

function interruption.d(self, done, job)
  deferral.until_due(self.queue, done.job_id, job, done.wait_ms, self.now, done.payload)
  return "d"
end

function interruption.w(self, done, job)
  if not deferral.for_children(self.queue, done.job_id, job, self.now) then
    return "a"
  end
  if (_tonumber(job.depsFailed) or 0) + (_tonumber(job.depsSkipped) or 0) > 0 then
    -- A child failed while the job was still running.
    propagation.decide(self.outcomes, self.queue, done.job_id)
  end
  return "w"
end

function interruption.s(self, done, job)
  deferral.for_signal(self.queue, done.job_id, job, self.now, done.payload, done.wait_ms)
  return "s"
end

--- Without a group there is nothing to hold back: the job fails, as with every client, and trying again cannot help.
function interruption.g(self, done, job)
  local queue, job_id, group = self.queue, done.job_id, job.groupKey
  if not group or group == "" then
    done.max_attempts = 0
    return failed_attempt.attempt(self, done, job, NO_GROUP)
  end
  local fails = done.payload == "fail"
  if fails then
    dead_letters.send(self, job_id, job, group_limit.REASON, 0)
  end
  group_limit.put_down(queue, job_id, job, self.now, done.payload)
  group_limit.group(queue, group, job_id, done.wait_ms, self.now, done.extend and "max" or "replace")
  return fails and "f" or "g"
end

return interruption
end)()

modules.outcomes = (function()
--- Outcomes of started jobs: reported under their leases, with the effects of the wire's own functions.

local chunks = require("chunks")
local completion = require("completion")
local dependents = require("dependents")
local entries = require("entries")
local exchange = require("exchange")
local failed_attempt = require("failed_attempt")
local interruption = require("interruption")
local lease = require("lease")
local propagation = require("propagation")
local record = require("record")
local stream = require("stream")

local outcomes = {}

--- Notify the jobs that wait for this one that it has completed.
local function notify_parents(self, job_id, job, registered)
  if not registered and not job.parentId then
    return
  end
  dependents.each(self.queue, job_id, job, registered, function(parent_queue, parent_id)
    propagation.completed(self.outcomes, parent_queue, parent_id, self.queue .. job_id)
  end)
end

--- A settlement that arrives too late changes nothing, except that it removes the entry of an ended job.
--- A completion that was settled before, and whose reply was lost, is confirmed.
local function late(self, done, job, same, registered)
  if done.entry_id ~= "" and (not job.state or record.has_ended(job)) then
    exchange.leave(self, done.job_id, done.entry_id)
  end
  if done.kind == "c" and same and job.state == "completed" then
    notify_parents(self, done.job_id, job, registered)
    return "c"
  end
  return "l"
end

local function complete(self, done, job, registered)
  done.returnvalue, done.now_ms, done.skip_events = done.payload, self.now, self.skip_events
  completion.write(self.queue, done)
  completion.free(self.queue, done, job)
  notify_parents(self, done.job_id, job, registered)
  exchange.completed(self, done)
  return "c"
end

local function fail(self, done, job)
  return failed_attempt.attempt(self, done, job, done.payload)
end

local SETTLE = {
  c = complete,
  f = fail,
  d = interruption.d,
  w = interruption.w,
  s = interruption.s,
  g = interruption.g,
}

--- Fail a job that was revoked before it started.
function outcomes.fail_revoked(self, job_id)
  failed_attempt.attempt(self, { job_id = job_id, max_attempts = 0 }, record.load(self.queue, job_id), "revoked")
end

--- Return delivered jobs from the `first` on to the end of the stream. One that was returned before stays there.
function outcomes.hand_back(self, deliveries, first)
  for index = first, #deliveries do
    local job_id, entry_id = deliveries[index].job_id, deliveries[index].entry_id
    if entries.drop(self.queue, self.group, entry_id) then
      local job = record.load(self.queue, job_id)
      if job and not record.has_ended(job) then
        _redis_call("HSET", self.queue .. "job:" .. job_id, "state", "waiting")
        stream.push(self.queue, job_id, job.name)
      end
    end
  end
end

--- Whether registered parents wait for any of the jobs. Mostly none does, and one look serves all.
local function any_registered(queue, settlements)
  local keys = {}
  for index, done in _ipairs(settlements) do
    keys[index] = queue .. "parents:" .. done.job_id
  end
  return chunks.any_exist(keys)
end

--- Tell outcomes; returns a letter for each.
function outcomes.settle(self, settlements)
  if not settlements[1] then
    return ""
  end
  local letters = {}
  local registered = any_registered(self.queue, settlements)
  for index = 1, #settlements do
    local done = settlements[index]
    local job, same = lease.look(self.queue, done, done.kind == "c" and lease.COMPLETION or lease.OTHER)
    if not same or job.state ~= "active" then
      letters[index] = late(self, done, job, same, registered)
    else
      exchange.leave(self, done.job_id, done.entry_id)
      if done.kind ~= "c" then
        propagation.knows(self.outcomes, done.job_id, job, registered)
      end
      letters[index] = SETTLE[done.kind](self, done, job, registered)
    end
  end
  return _table_concat(letters)
end

return outcomes
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

modules.wake = (function()
--- Signals to the workers of a queue: that something is due earlier than they expect, or that a running job is cancelled.
--- They read them from a stream of their own, `wake`. What concerns one idle worker is in `wake:one`, which their group reads
--- together with the jobs. Clients of other languages neither write nor read these.

local guarded = require("guarded")

local wake = {}

local KEPT, TTL_MS = 1000, 60000
-- Two workers watch the next due time: if one dies, or its handlers block it, the other is on time.
local WATCHERS = 2
-- A watcher that is later than this is considered dead.
local LATE_MS = 100

local function signal(queue, what, value)
  guarded.call("XADD", queue .. "wake", "MAXLEN", "~", KEPT, "*", what, value)
  _redis_call("PEXPIRE", queue .. "wake", TTL_MS)
end

--- Make all workers check for jobs, and ask what is due next.
function wake.all(queue)
  signal(queue, "due", 1)
end

--- Signal to one idle worker. The newest signal stands for all before it. Returns false where no worker has ever waited for
--- one, as those of older versions do not.
local function signal_one(queue, what)
  local key = queue .. "wake:one"
  local last = guarded.call("XREVRANGE", key, "+", "-", "COUNT", 1)[1]
  if last and last[2][1] == "due" then
    what = "due"
  end
  return _redis_call("XADD", key, "NOMKSTREAM", "MAXLEN", 1, "*", what, 1)
end

--- Signal one idle worker, or all if none waits for such a signal. `ready`: a list holds a job that no stream entry
--- announces; the worker takes jobs until the lists are empty, or passes the signal on. `due`: something is due sooner than
--- workers know; the worker ticks, which wakes one for the lists, too.
function wake.one(queue, what)
  if not signal_one(queue, what) then
    wake.all(queue)
  end
end

function wake.has_listed(queue)
  return _redis_call("EXISTS", queue .. "lifo", queue .. "priority") > 0
end

--- Wake a worker if a list holds a job, for which the one that found it may have no slot.
function wake.for_lists(queue)
  if wake.has_listed(queue) then
    signal_one(queue, "ready")
  end
end

--- Wake a worker unless one watches for what is due then; returns whether that was needed. `key` holds the watchers, by the
--- time at which each ticks.
function wake.for_due(queue, key, due, now)
  local from, to = _string_format("%.0f", now), _string_format("%.0f", _math_max(due, now))
  local is_needed = guarded.call("ZCOUNT", key, from, to) == 0
  if is_needed then
    -- A watcher that should have ticked a moment ago may be dead; of two, one is about to tick.
    is_needed = _redis_call("ZCOUNT", key, _string_format("%.0f", now - LATE_MS), "(" .. from) < WATCHERS
  end
  if is_needed then
    wake.one(queue, "due")
  end
  return is_needed
end

--- Whether the group that hears signals to one worker has no more than one.
local function is_alone(queue)
  local group = _redis_pcall("XINFO", "GROUPS", queue .. "wake:one")[1] -- name, its value, consumers, their number, ...
  return group and group[4] <= 1
end

--- Have a worker watch for what is due then, unless enough others do; returns whether it must. The first wakes a second.
function wake.watch(queue, key, consumer, due, now)
  local at = _math_max(due, now)
  local at_text = _string_format("%.0f", at)
  guarded.call("ZREMRANGEBYSCORE", key, "-inf", _string_format("(%.0f", now - LATE_MS))
  local before = _tonumber(_redis_call("ZSCORE", key, consumer) or nil)
  _redis_call("ZREM", key, consumer)
  local others = _redis_call("ZCOUNT", key, "-inf", at_text)
  if others >= WATCHERS then
    return false
  end
  _redis_call("ZADD", key, at_text, consumer)
  _redis_call("PEXPIRE", key, _string_format("%.0f", at - now + TTL_MS))
  if others + 1 < WATCHERS and not (before and before <= at) and not is_alone(queue) then
    wake.one(queue, "due")
  end
  return true
end

--- A worker watches no more; returns whether it did.
function wake.ignore(key, consumer)
  return guarded.call("ZREM", key, consumer) == 1
end

--- A running job is cancelled.
function wake.cancel(queue, job_id)
  signal(queue, "cancel", job_id)
end

--- A running job was taken from its worker, which should ask for its lease.
function wake.released(queue, job_id)
  signal(queue, "released", job_id)
end

return wake
end)()

modules.dispatch = (function()
--- Starts jobs for a worker: those delivered to it, then as many more as it wants.

local activation = require("activation")
local entries = require("entries")
local exchange = require("exchange")
local lists = require("lists")
local outcomes = require("outcomes")
local promotion = require("promotion")
local shares = require("shares")
local stream = require("stream")
local wake = require("wake")

local dispatch = {}

--- How many candidates are inspected for `want` jobs: some are gone, expired or have to wait for their group.
local LOOKS_PER_JOB, SPARE_LOOKS = 3, 10
local MOST_PROMOTED = 100

--- Start one job; returns 1 if it runs now. The worker no longer has one that doesn't.
local function start(self, job_id, entry_id)
  self.entry.id = entry_id
  local flat, verdict = activation.try(self.queue, job_id, self.entry, self.now, self.skip_events)
  if flat then
    local started = self.started
    local size = #started
    started[size + 1], started[size + 2], started[size + 3] = job_id, entry_id, flat
    return 1
  end
  if verdict == "REVOKED" then
    outcomes.fail_revoked(self, job_id)
  end
  if entry_id ~= "" and (verdict == "REVOKED" or verdict == "") then
    exchange.leave(self, job_id, entry_id)
  end
  return 0
end

--- Start the delivered jobs up to `last`, if their entries are still pending in the group.
local function start_delivered(self, deliveries, last)
  local held = entries.claim(self.queue, self.group, self.consumer, deliveries, last)
  for index = 1, last do
    local delivery = deliveries[index]
    if held[delivery.entry_id] then
      start(self, delivery.job_id, delivery.entry_id)
    end
  end
end

local function from_lists(self, want, looks)
  local found = 0
  while found < want and looks > 0 do
    local job_ids = lists.pop(self.queue, _math_min(want - found, looks))
    if not job_ids[1] then
      break
    end
    for _, job_id in _ipairs(job_ids) do
      found = found + start(self, job_id, "")
    end
    looks = looks - #job_ids
  end
  lists.count_in(self.queue, found)
  return found, looks
end

--- Start jobs of shares before a backlog of jobs without one, which they would wait behind on the stream.
local function from_shares(self, want)
  local found = 0
  for _, job_id in _ipairs(shares.overtake(self.queue, want)) do
    found = found + start(self, job_id, "")
  end
  lists.count_in(self.queue, found)
  return found
end

local function from_stream(self, want, looks)
  local found = 0
  while found < want and looks > 0 do
    local batch = entries.read(self.queue, self.group, self.consumer, _math_min(want - found, looks))
    if not batch[1] then
      if not self.has_shares or shares.feed(self.queue, want - found) == 0 then
        return "empty"
      end
    end
    for _, entry in _ipairs(batch) do
      local job_id = stream.field(entry[2], "jobId")
      if job_id then
        found = found + start(self, job_id, entry[1])
      else
        exchange.leave(self, "", entry[1])
      end
    end
    looks = looks - #batch
  end
  return "enough"
end

--- How many more jobs the queue lets start now; nil while it is paused. Delivered ones are counted as started.
local function places(self, honor_pause)
  local settings = _redis_call("HMGET", self.queue .. "meta", "paused", "globalConcurrency", "shared")
  if honor_pause and settings[1] == "1" then
    return nil
  end
  self.has_shares = settings[3] and true
  local most = _tonumber(settings[2]) or 0
  if most <= 0 then
    return math.huge
  end
  return most - stream.pending(self.queue .. "stream", self.group) - lists.counted(self.queue)
end

--- Start what was delivered and up to `want` jobs more, as far as the queue allows; the rest of the delivered jobs
--- is returned. Returns why no more were taken.
function dispatch.serve(self, deliveries, want, honor_pause)
  local free = places(self, honor_pause)
  local kept = free and #deliveries - _math_min(#deliveries, _math_max(0, -free)) or 0
  outcomes.hand_back(self, deliveries, kept + 1)
  if not free then
    return "paused"
  end
  if kept > 0 then
    start_delivered(self, deliveries, kept)
  end
  local most, promoted = _math_min(want, _math_max(0, free)), 0
  -- Usually all of these are empty, which one command can check.
  local has_others = most > 0
    and _redis_call("EXISTS", self.queue .. "scheduled", self.queue .. "priority", self.queue .. "lifo") > 0
  if has_others then
    -- What is due now must not wait for the next round of promotions.
    promoted = promotion.due(self.queue, self.now, MOST_PROMOTED, true)
    self.has_shares = self.has_shares or promoted > 0 and shares.any_wait(self.queue)
  end
  local listed, looks = 0, want * LOOKS_PER_JOB + SPARE_LOOKS
  if has_others then
    listed, looks = from_lists(self, most, looks)
  end
  if promoted > 0 then
    wake.for_lists(self.queue)
  end
  if self.has_shares then
    listed = listed + from_shares(self, most - listed)
    shares.feed(self.queue, most - listed)
  end
  local stopped = from_stream(self, most - listed, looks)
  if promoted == MOST_PROMOTED and stopped == "empty" then
    stopped = "enough" -- more may be due
  end
  if most < want and stopped == "enough" or kept < #deliveries then
    return "full"
  end
  if want > 0 then
    return stopped
  end
  return self.has_shares and "enough" or ""
end

return dispatch
end)()

modules.readers = (function()
--- Readers of a queue's events: a field each, with its position and the end of its lease.

local events = require("events")
local guarded = require("guarded")
local validate = require("validate")

local readers = {}

local function place(id)
  local ms, number = id:match("^(%d+)%-?(%d*)$")
  return _tonumber(ms), _tonumber(number) or 0
end

local function is_before(one, other)
  local ms, number = place(one)
  local other_ms, other_number = place(other)
  return ms < other_ms or (ms == other_ms and number < other_number)
end

--- Remove readers whose lease has ended; returns the earliest position of the others and the end of the last lease.
local function review(key, now_ms)
  local found = guarded.call("HGETALL", key)
  local slowest, until_ms
  for index = 1, #found, 2 do
    local name, after, ends = found[index], found[index + 1]:match("^(%S+) (%d+)$")
    if name ~= events.SLOWEST and after and _tonumber(ends) > now_ms then
      slowest = slowest and is_before(slowest, after) and slowest or after
      until_ms = _math_max(until_ms or 0, _tonumber(ends))
    elseif name ~= events.SLOWEST then
      _redis_call("HDEL", key, name)
    end
  end
  return slowest, until_ms
end

--- Register a reader, or renew its lease. The key expires with the last lease.
function readers.follow(queue, reader, after, lease_ms)
  if not place(after) then
    validate.refuse("followEvents", "'after' is no event's id")
  end
  local key = queue .. events.READERS
  local time = _redis_call("TIME")
  local now_ms = time[1] * 1000 + _math_floor(time[2] / 1000)
  guarded.call("HSET", key, reader, after .. " " .. _string_format("%.0f", now_ms + lease_ms))
  local slowest, until_ms = review(key, now_ms)
  _redis_call("HSET", key, events.SLOWEST, slowest)
  _redis_call("PEXPIREAT", key, _string_format("%.0f", until_ms))
end

return readers
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

modules.usage = (function()
--- What jobs used: on the job itself, and added up by the minute in which it was reported.

local usage = {}

local KEPT_S = 2592000
local NAMES = {
  "model", "provider", "tokens", "totalTokens", "costs", "totalCost", "costUnit", "latencyMs", "cached", "bucketTs",
}

local KNOWN, FIELDS = {}, {}
for index = 1, #NAMES do -- a library has no `ipairs` while it loads
  local name = NAMES[index]
  KNOWN[name], FIELDS[index] = name ~= "bucketTs", "usage:" .. name
end

--- A report as a table by name.
function usage.read(fields)
  local report = {}
  for _, field in _ipairs(fields) do
    if not KNOWN[field.name] then
      _error({ err = "OQ_BAD_ARGUMENT oq1_reportUsage: '" .. field.name .. "' is no part of a report" })
    end
    report[field.name] = field.value
  end
  return report
end

--- The shortest text that means exactly this number: so that what is taken away is what was added.
local function exact(number)
  local text
  for digits = 14, 17 do
    text = _string_format("%." .. digits .. "g", number)
    if _tonumber(text) == number then
      break
    end
  end
  return text
end

local function add_amount(key, field, stored, sign)
  local amount = _tonumber(stored)
  if amount and amount > 0 and amount < math.huge then
    _redis_call("HINCRBYFLOAT", key, field, exact(sign * amount))
  end
end

local function add_categories(key, prefix, stored, sign)
  local readable, amounts = _pcall(_cjson_decode, stored or "{}")
  for category, amount in _pairs(readable and _type(amounts) == "table" and amounts or {}) do
    add_amount(key, prefix .. category, amount, sign)
  end
end

--- Count a report in its minute, or with the sign -1 no more.
local function add(key, report, sign)
  _redis_call("HINCRBY", key, "jobCount", sign)
  add_amount(key, "totalTokens", report.totalTokens, sign)
  add_amount(key, "totalCost", report.totalCost, sign)
  add_categories(key, "tokens:", report.tokens, sign)
  add_categories(key, "costs:", report.costs, sign)
  if report.model then
    _redis_call("HINCRBY", key, "models:" .. report.model, sign)
  end
  if report.costUnit and sign > 0 then
    _redis_call("HSET", key, "costUnit", report.costUnit)
  end
  _redis_call("EXPIRE", key, KEPT_S)
end

local function write(queue, job_key, report, minute)
  local flat = {}
  for name, value in _pairs(report) do
    flat[#flat + 1] = "usage:" .. name
    flat[#flat + 1] = value
  end
  _redis_call("HSET", job_key, "usage:bucketTs", minute, _unpack(flat))
  add(queue .. "usage:" .. minute, report, 1)
end

--- Put a report in the place of an earlier one. An empty one only takes that back.
function usage.replace(queue, job_key, report, minute)
  local earlier = {}
  for index, value in _ipairs(_redis_call("HMGET", job_key, _unpack(FIELDS))) do
    earlier[NAMES[index]] = value or nil
  end
  _redis_call("HDEL", job_key, _unpack(FIELDS))
  -- A minute past retention is not created again only to be subtracted from.
  local old_key = earlier.bucketTs and queue .. "usage:" .. earlier.bucketTs
  if old_key and _redis_call("EXISTS", old_key) == 1 then
    add(old_key, earlier, -1)
  end
  if _next(report) then
    write(queue, job_key, report, minute)
  end
end

return usage
end)()

modules.graph_retry = (function()
--- Lets failed jobs of a graph run again, and those that wait for them wait.

local dependencies = require("dependencies")
local dependents = require("dependents")
local holding = require("holding")
local propagation = require("propagation")
local record = require("record")
local rules = require("rules")
local stream = require("stream")

local graph_retry = {}

--- How a job ended that others of the queue wait for, `pending` while it has not; nil when it is not known here.
local function outcome_of(queue)
  return function(member)
    local there, job_id = dependents.read_member(queue, member)
    return there == queue and propagation.outcome_of(queue, job_id) or nil
  end
end

--- Make a failed job wait, with all its attempts; false when it has not failed.
local function reset(queue, job_id)
  local key = queue .. "job:" .. job_id
  if _redis_call("HGET", key, "state") ~= "failed" then
    return false
  end
  _redis_call("ZREM", queue .. "failed", job_id)
  stream.disown_left(queue, job_id)
  _redis_call(
    "HSET", key,
    "state", "waiting-children", "attemptsMade", 0, "failedReason", "", "finishedOn", ""
  )
  _redis_call("HDEL", key, "outcome", "stalledCount", "lastActive", "revoked", "failureKind", "traceback")
  return true
end

--- Make a job wait for `member` again: now, or when it waits for its children.
local function await(queue, job_id, member)
  local key = queue .. "job:" .. job_id
  local fields = _redis_call("HMGET", key, "state", "processedOn")
  if not fields[1] or record.has_ended({ state = fields[1] }) then
    return
  elseif fields[2] and fields[1] == "waiting-children" then
    _redis_call("HDEL", key, "processedOn")
    dependencies.recount(queue, job_id, outcome_of(queue))
  end
  dependencies.await(queue, job_id, member)
end

--- Have all that wait for a job wait for it again; those of other queues are left to the caller.
local function announce(queue, job_id, elsewhere)
  local fields = _redis_call("HMGET", queue .. "job:" .. job_id, "parentId", "parentQueue")
  local job, member = { parentId = fields[1], parentQueue = fields[2] }, queue .. job_id
  dependents.each(queue, job_id, job, true, function(there, dependent_id)
    if there == queue then
      await(queue, dependent_id, member)
    else
      local size = #elsewhere
      elsewhere[size + 1], elsewhere[size + 2] = dependents.queue_name(there), dependent_id
      elsewhere[size + 3] = member
    end
  end)
end

--- Whether a job that ran may run again at once: all its dependencies have ended. A job that waits for the end of its
--- children finds out by counting them.
local function may_run(queue, job_id)
  local ran, rule = _unpack(_redis_call("HMGET", queue .. "job:" .. job_id, "processedOn", "triggerRule"))
  return ran and rule ~= rules.CHILDREN_ENDED and not dependencies.any_pending(queue, job_id, outcome_of(queue))
end

--- Recount a job's dependencies. The rule of a job that ran, and may again now, is not applied a second time.
local function recount(queue, job_id)
  if may_run(queue, job_id) then
    dependencies.close(queue, job_id)
    return
  end
  _redis_call("HDEL", queue .. "job:" .. job_id, "processedOn")
  dependencies.recount(queue, job_id, outcome_of(queue))
end

--- Revive jobs; returns those that had failed, and the dependents in other queues that must wait for them again.
function graph_retry.all(outcomes, job_ids, news, held)
  local queue, revived, elsewhere = outcomes.queue, {}, {}
  for _, job_id in _ipairs(job_ids) do
    if reset(queue, job_id) then
      revived[#revived + 1] = job_id
    end
  end
  for _, job_id in _ipairs(revived) do
    recount(queue, job_id)
    if held then
      dependencies.hold(queue, job_id)
    end
    announce(queue, job_id, elsewhere)
  end
  for _, told in _ipairs(news) do
    await(queue, told.dependent, told.member)
  end
  for _, job_id in _ipairs(held and {} or revived) do
    holding.go_on(outcomes, job_id)
  end
  return revived, elsewhere
end

return graph_retry
end)()

modules.submission = (function()
--- Writes a graph of jobs, as addFlow, addJob and registerParent do node by node.

local chunks = require("chunks")
local creation = require("creation")
local dependencies = require("dependencies")
local dependents = require("dependents")
local events = require("events")
local ids = require("ids")
local propagation = require("propagation")
local rules = require("rules")

local submission = {}

--- Maximum jobs that one call changes because it notified them; the others are left to the caller.
local ROOM = 100

local function refuse(code, why)
  _error({ err = code .. " oq1_submitGraph: " .. why })
end

local function bad(why)
  refuse("OQ_BAD_ARGUMENT", why)
end

local function check_nodes(queue, nodes)
  local seen = {}
  for place, job in _ipairs(nodes) do
    local id = job.custom_id
    if id == "" or seen[id] or job.parent_id ~= "" then
      bad("node " .. place .. " needs an id of its own and no parent")
    elseif creation.problem(queue, job) == "ERR:COST_EXCEEDS_CAPACITY" then
      refuse("OQ_TOO_EXPENSIVE", "node " .. place .. " costs more than its token bucket holds")
    end
    seen[id] = true
  end
end

local function check_place(nodes, place, what)
  if not nodes[place] then
    bad(what .. " names node " .. place .. " of " .. #nodes)
  end
end

--- Refuse arguments that would leave a graph half written, or waiting forever.
function submission.check(queue, graph)
  local nodes = graph.nodes
  check_nodes(queue, nodes)
  for _, edge in _ipairs(graph.edges) do
    if edge.dependent < 1 or edge.dependency <= edge.dependent or edge.dependency > #nodes then
      bad("an edge from " .. edge.dependent .. " to " .. edge.dependency .. " leads to no later node")
    end
  end
  for _, edge in _ipairs(graph.foreign) do
    check_place(nodes, edge.dependent, "a foreign dependency")
    if not dependents.read_member(queue, edge.member) then
      bad("'" .. edge.member .. "' names no job")
    end
  end
  for _, edge in _ipairs(graph.outside) do
    check_place(nodes, edge.dependency, "a foreign dependent")
    if not dependents.read_member(queue, dependents.sibling(queue, edge.queue_name) .. edge.job_id) then
      bad("'" .. edge.job_id .. "' of '" .. edge.queue_name .. "' names no job")
    end
  end
  for _, ruled in _ipairs(graph.rules) do
    check_place(nodes, ruled.place, "a rule")
    if not rules.is_rule(ruled.rule) then
      bad("'" .. ruled.rule .. "' is no trigger rule")
    end
  end
end

--- Write the flow's record, once.
function submission.note(flow_key, flows_key, flow_id, plan, now, held)
  if _redis_call("HSETNX", flow_key, "plan", plan) == 1 then
    _redis_call("HSET", flow_key, "createdAt", now, "state", held and "submitting" or "running")
    _redis_call("ZADD", flows_key, "NX", now, flow_id)
    _redis_call("ZADD", flows_key .. ":due", now, flow_id) -- when the reconciler should read it
  end
end

local function wait_for(job, member, weak)
  job.waits_for[#job.waits_for + 1] = member
  if weak then
    job.weak[#job.weak + 1] = member
  end
end

--- Set the dependents and the dependencies of every node.
local function link(queue, graph)
  local nodes, name = graph.nodes, dependents.queue_name(queue)
  for _, job in _ipairs(nodes) do
    job.told, job.waits_for, job.weak = {}, {}, {}
  end
  for _, edge in _ipairs(graph.edges) do
    local dependent, dependency = nodes[edge.dependent], nodes[edge.dependency]
    wait_for(dependent, queue .. dependency.custom_id, edge.weak)
    dependency.told[#dependency.told + 1] = { queue_name = name, job_id = dependent.custom_id }
  end
  for _, edge in _ipairs(graph.foreign) do
    wait_for(nodes[edge.dependent], edge.member, edge.weak)
  end
  for _, edge in _ipairs(graph.outside) do
    local told = nodes[edge.dependency].told
    told[#told + 1] = { queue_name = edge.queue_name, job_id = edge.job_id, is_outside = true }
  end
  for _, ruled in _ipairs(graph.rules) do
    nodes[ruled.place].rule = ruled.rule
  end
end

--- Store the dependents where completions read them.
local function register(queue, job)
  local members, parent_ids, parent_queues = {}, {}, {}
  for index, other in _ipairs(job.told) do
    members[index] = dependents.sibling(queue, other.queue_name) .. other.job_id
    parent_ids[index], parent_queues[index] = other.job_id, other.queue_name
  end
  chunks.call(members, "SADD", queue .. "parents:" .. job.custom_id)
  _redis_call(
    "HSET", queue .. "job:" .. job.custom_id,
    "parentIds", _cjson_encode(parent_ids), "parentQueues", _cjson_encode(parent_queues)
  )
end

--- Store the fields of a job that only this library knows.
local function describe(queue, job, flow_id)
  local fields = {}
  if flow_id ~= "" then
    fields[1], fields[2] = "flow", flow_id
  end
  if job.rule and job.waits_for[1] then
    fields[#fields + 1], fields[#fields + 2] = "triggerRule", job.rule
  end
  if job.weak[1] then
    fields[#fields + 1], fields[#fields + 2] = "depsOptional", #job.weak
  end
  for _, member in _ipairs(job.weak) do
    fields[#fields + 1], fields[#fields + 2] = dependencies.weak_field(member), 1
  end
  if fields[1] then
    chunks.call(fields, "HSET", queue .. "job:" .. job.custom_id)
  end
end

local function create(queue, job, flow_id, held)
  local waits, only = job.waits_for[1] ~= nil, job.told[1]
  local name = dependents.queue_name(queue)
  -- The only dependent of a ready job is named in its record, the others in a set; as is one of another queue, for the
  -- record makes other clients' completions touch that queue's keys, which a cluster refuses.
  local in_record = not waits and #job.told == 1 and only.queue_name == name
  if in_record then
    job.parent_id, job.parent_queue = only.job_id, name
  end
  job.keeps_limits = waits
  ids.take(queue, job.custom_id)
  creation.write(queue, job.custom_id, job, (waits or held) and "waiting-children" or nil)
  local obstacles = dependencies.obstacles(queue, held, waits and job.rule)
  chunks.call(job.waits_for, "SADD", queue .. "deps:" .. job.custom_id)
  chunks.call(obstacles, "SADD", queue .. "deps:" .. job.custom_id)
  describe(queue, job, flow_id)
  events.emit(queue, "added", job.custom_id, "name", job.job_name)
  if only and not in_record then
    register(queue, job)
  end
end

--- Notify dependents, which may be new, of the outcome of a job that existed before.
local function register_new(queue, job, created)
  local members, named = {}, _redis_call("HGET", queue .. "job:" .. job.custom_id, "parentId")
  for _, other in _ipairs(job.told) do
    local member = dependents.sibling(queue, other.queue_name) .. other.job_id
    if (created[member] or other.is_outside) and other.job_id ~= named then
      members[#members + 1] = member
    end
  end
  chunks.call(members, "SADD", queue .. "parents:" .. job.custom_id)
end

--- Write the jobs that don't exist yet. Dependents are notified of existing ones that have ended.
function submission.write(queue, graph, now, flow_id, held)
  link(queue, graph)
  local outcomes = propagation.new(queue, now, ROOM, true)
  local replies, created = {}, {}
  for place, job in _ipairs(graph.nodes) do
    if not ids.exists(queue, job.custom_id) then
      create(queue, job, flow_id, held)
      replies[place], created[queue .. job.custom_id] = job.custom_id, true
      if job.rule == "always" and job.waits_for[1] then
        propagation.decide(outcomes, queue, job.custom_id)
      end
    else
      replies[place] = "duplicate"
      register_new(queue, job, created)
      propagation.ended(outcomes, job.custom_id)
    end
  end
  local _, elsewhere, remaining = _unpack(propagation.finish(outcomes))
  return { replies, elsewhere, remaining }
end

return submission
end)()

modules.tracking = (function()
--- Tracked jobs: a set of their ids, and a field on each record. Retention takes them out of the sets of finished jobs, and
--- keeps their records.

local purge = require("purge")
local retention = require("retention")

local tracking = { FIELD = "tracked" }

local DONE = { completed = "completed", failed = "failed" }

local function key_of(queue)
  return queue .. "tracked"
end

function retention.discard(queue, job_ids)
  if not job_ids[1] then
    return
  end
  -- A key of another type must not keep jobs from being settled.
  local tracked, left = _redis_pcall("ZMSCORE", key_of(queue), _unpack(job_ids)), {}
  for index, job_id in _ipairs(job_ids) do
    if tracked.err or not tracked[index] then
      left[#left + 1] = job_id
    end
  end
  purge.jobs(queue, left)
end

--- Forget tracked jobs that were removed.
local function sweep(queue)
  for _, job_id in _ipairs(_redis_call("ZRANGE", key_of(queue), 0, -1)) do
    if _redis_call("EXISTS", queue .. "job:" .. job_id) == 0 then
      _redis_call("ZREM", key_of(queue), job_id)
    end
  end
end

--- Track a job; returns the function's reply.
function tracking.add(queue, job_id, now, most)
  if _redis_call("ZSCORE", key_of(queue), job_id) then
    return "ok"
  end
  if _redis_call("ZCARD", key_of(queue)) >= most then
    sweep(queue)
    if _redis_call("ZCARD", key_of(queue)) >= most then
      return "too_many"
    end
  end
  _redis_call("ZADD", key_of(queue), _string_format("%.0f", now), job_id)
  _redis_call("HSET", queue .. "job:" .. job_id, tracking.FIELD, _string_format("%.0f", now))
  return "ok"
end

--- Stop tracking a job. If retention no longer keeps it, it is removed.
function tracking.drop(queue, job_id)
  _redis_call("ZREM", key_of(queue), job_id)
  _redis_call("HDEL", queue .. "job:" .. job_id, tracking.FIELD)
  local set = DONE[_redis_call("HGET", queue .. "job:" .. job_id, "state")]
  if set and not _redis_call("ZSCORE", queue .. set, job_id) then
    purge.jobs(queue, { job_id })
  end
  return "ok"
end

return tracking
end)()

do -- acquirePools
  local pools = require("pools")
  local validate = require("validate")
  redis.register_function("oq1_acquirePools", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "acquirePools", "now_ms")
    local token = ARGV[2]
    local taken_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "acquirePools", "taken_ms")
    local lease_ms = ARGV[4] == "0" and 0 or whole(ARGV[4], "acquirePools", "lease_ms")
    local claim_count = ARGV[5] == "0" and 0 or whole(ARGV[5], "acquirePools", "claim_count")
    count_words("acquirePools", #KEYS, 1, #ARGV, 5 + 2 * claim_count)
    local claims = {}
    for index = 1, claim_count do
      local arg = 5 + (index - 1) * 2
      claims[index] = {
        pool = ARGV[arg + 1],
        weight = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "acquirePools", "weight"),
      }
    end
    local queue = queue_of("acquirePools", KEYS[1], ":slots") .. ":"
    local weights, names = validate.claims("acquirePools", claims)
    if lease_ms < 1 then
      validate.refuse("acquirePools", "a lease of 0 ms holds nothing")
    end
    local self = pools.open(queue, now_ms)
    local verdict, detail = pools.acquire(self, token, taken_ms, lease_ms, weights)
    return { verdict, detail, pools.wake(self, names) }
  end)
end

do -- addBulk
  local bulk = require("bulk")
  local validate = require("validate")
  redis.register_function("oq1_addBulk", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local skip_events = flag(ARGV[1], "addBulk", "skip_events")
    local form_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "addBulk", "form_count")
    local job_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "addBulk", "job_count")
    count_words("addBulk", #KEYS, 4, #ARGV, 3 + 18 * form_count + 4 * job_count)
    local forms = {}
    for index = 1, form_count do
      local arg = 3 + (index - 1) * 18
      forms[index] = {
        job_name = ARGV[arg + 1],
        opts = ARGV[arg + 2],
        timestamp_ms = ARGV[arg + 3] == "0" and 0 or whole(ARGV[arg + 3], "addBulk", "timestamp_ms"),
        delay_ms = ARGV[arg + 4] == "0" and 0 or whole(ARGV[arg + 4], "addBulk", "delay_ms"),
        priority = ARGV[arg + 5] == "0" and 0 or whole(ARGV[arg + 5], "addBulk", "priority"),
        parent_id = ARGV[arg + 6],
        max_attempts = ARGV[arg + 7] == "0" and 0 or whole(ARGV[arg + 7], "addBulk", "max_attempts"),
        ordering_key = ARGV[arg + 8],
        group_concurrency = ARGV[arg + 9] == "0" and 0 or whole(ARGV[arg + 9], "addBulk", "group_concurrency"),
        group_rate_max = ARGV[arg + 10] == "0" and 0 or whole(ARGV[arg + 10], "addBulk", "group_rate_max"),
        group_rate_duration_ms = ARGV[arg + 11] == "0" and 0 or whole(ARGV[arg + 11], "addBulk", "group_rate_duration_ms"),
        tb_capacity = ARGV[arg + 12] == "0" and 0 or whole(ARGV[arg + 12], "addBulk", "tb_capacity"),
        tb_refill_rate = ARGV[arg + 13] == "0" and 0 or whole(ARGV[arg + 13], "addBulk", "tb_refill_rate"),
        cost = ARGV[arg + 14] == "0" and 0 or whole(ARGV[arg + 14], "addBulk", "cost"),
        ttl_ms = ARGV[arg + 15] == "0" and 0 or whole(ARGV[arg + 15], "addBulk", "ttl_ms"),
        lifo = flag(ARGV[arg + 16], "addBulk", "lifo"),
        parent_queue = ARGV[arg + 17],
        scheduler_name = ARGV[arg + 18],
      }
    end
    local jobs = {}
    for index = 1, job_count do
      local arg = 3 + 18 * #forms + (index - 1) * 4
      jobs[index] = {
        form = ARGV[arg + 1] == "0" and 0 or whole(ARGV[arg + 1], "addBulk", "form"),
        data = ARGV[arg + 2],
        opts = ARGV[arg + 3],
        custom_id = ARGV[arg + 4],
      }
    end
    local queue = queue_of("addBulk", KEYS[1], ":id") .. ":"
    local common_opts = {}
    for place, form in _ipairs(forms) do
      common_opts[place] = form.opts
    end
    for _, job in _ipairs(jobs) do
      if not forms[job.form + 1] then
        validate.refuse("addBulk", ("there is no form %.0f"):format(job.form))
      end
    end

    -- The form itself, completed with the job's own fields.
    local function whole(job)
      local form = forms[job.form + 1]
      form.data, form.custom_id = job.data, job.custom_id
      form.opts = job.opts ~= "" and job.opts or common_opts[job.form + 1]
      return form
    end

    return bulk.add(queue, jobs, skip_events, whole)
  end)
end

do -- addChildren
  local children = require("children")
  local lease = require("lease")
  local claim = {}
  redis.register_function("oq1_addChildren", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    claim.job_id = ARGV[1]
    claim.taken_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "addChildren", "taken_ms")
    claim.stalled_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "addChildren", "stalled_count")
    local now_ms = ARGV[4] == "0" and 0 or whole(ARGV[4], "addChildren", "now_ms")
    local until_ended = flag(ARGV[5], "addChildren", "until_ended")
    local job_count = ARGV[6] == "0" and 0 or whole(ARGV[6], "addChildren", "job_count")
    count_words("addChildren", #KEYS, 7, #ARGV, 6 + 20 * job_count)
    local jobs = {}
    for index = 1, job_count do
      local arg = 6 + (index - 1) * 20
      jobs[index] = {
        job_name = ARGV[arg + 1],
        data = ARGV[arg + 2],
        opts = ARGV[arg + 3],
        timestamp_ms = ARGV[arg + 4] == "0" and 0 or whole(ARGV[arg + 4], "addChildren", "timestamp_ms"),
        delay_ms = ARGV[arg + 5] == "0" and 0 or whole(ARGV[arg + 5], "addChildren", "delay_ms"),
        priority = ARGV[arg + 6] == "0" and 0 or whole(ARGV[arg + 6], "addChildren", "priority"),
        parent_id = ARGV[arg + 7],
        max_attempts = ARGV[arg + 8] == "0" and 0 or whole(ARGV[arg + 8], "addChildren", "max_attempts"),
        ordering_key = ARGV[arg + 9],
        group_concurrency = ARGV[arg + 10] == "0" and 0 or whole(ARGV[arg + 10], "addChildren", "group_concurrency"),
        group_rate_max = ARGV[arg + 11] == "0" and 0 or whole(ARGV[arg + 11], "addChildren", "group_rate_max"),
        group_rate_duration_ms = ARGV[arg + 12] == "0" and 0 or whole(ARGV[arg + 12], "addChildren", "group_rate_duration_ms"),
        tb_capacity = ARGV[arg + 13] == "0" and 0 or whole(ARGV[arg + 13], "addChildren", "tb_capacity"),
        tb_refill_rate = ARGV[arg + 14] == "0" and 0 or whole(ARGV[arg + 14], "addChildren", "tb_refill_rate"),
        cost = ARGV[arg + 15] == "0" and 0 or whole(ARGV[arg + 15], "addChildren", "cost"),
        ttl_ms = ARGV[arg + 16] == "0" and 0 or whole(ARGV[arg + 16], "addChildren", "ttl_ms"),
        custom_id = ARGV[arg + 17],
        lifo = flag(ARGV[arg + 18], "addChildren", "lifo"),
        parent_queue = ARGV[arg + 19],
        scheduler_name = ARGV[arg + 20],
      }
    end
    local queue = queue_of("addChildren", KEYS[1], ":id") .. ":"
    children.check(claim, jobs)
    local job, same = lease.look(queue, claim, lease.RENEWAL)
    if not same or job.state ~= "active" or job.revoked then
      return "lost"
    end
    return children.add(queue, claim, jobs, now_ms, until_ended)
  end)
end

do -- clean
  local purge = require("purge")
  redis.register_function{ function_name = "oq1_clean", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local cutoff_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "clean", "cutoff_ms")
    local limit = ARGV[2] == "0" and 0 or whole(ARGV[2], "clean", "limit")
    count_words("clean", #KEYS, 3, #ARGV, 2)
    local queue = queue_of("clean", KEYS[3], ":id") .. ":"
    local finished_key = KEYS[1]
    return purge.finished(queue, finished_key, cutoff_ms, limit)
  end }
end

do -- cleanJobs
  local events = require("events")
  local purge = require("purge")
  redis.register_function{ function_name = "oq1_cleanJobs", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_count = ARGV[1] == "0" and 0 or whole(ARGV[1], "cleanJobs", "job_count")
    count_words("cleanJobs", #KEYS, 3, #ARGV, 1 + job_count)
    local job_ids = {}
    for index = 1, job_count do
      job_ids[index] = ARGV[1 + index]
    end
    local queue = queue_of("cleanJobs", KEYS[3], ":id") .. ":"
    local finished_key = KEYS[1]
    local removed = {}
    for _, job_id in _ipairs(job_ids) do
      if _redis_call("ZREM", finished_key, job_id) == 1 then
        removed[#removed + 1] = job_id
      end
    end
    if removed[1] then
      purge.jobs(queue, removed)
      events.emit(queue, "cleaned", #removed)
    end
    return removed
  end }
end

do -- countJobs
  local guarded = require("guarded")
  local validate = require("validate")
  redis.register_function("oq1_countJobs", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local day = ARGV[1]
    local count_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "countJobs", "count_count")
    count_words("countJobs", #KEYS, 1, #ARGV, 2 + 2 * count_count)
    local counts = {}
    for index = 1, count_count do
      local arg = 2 + (index - 1) * 2
      counts[index] = {
        field = ARGV[arg + 1],
        by = ARGV[arg + 2],
      }
    end
    local queue = queue_of("countJobs", KEYS[1], ":stream") .. ":"
    local KEPT_S = 30 * 86400
    local MOST_FIELDS = 10000

    if not day:find("^%d%d%d%d%-%d%d%-%d%d$") then
      validate.refuse("countJobs", "'" .. day .. "' is not a day")
    end
    for _, count in _ipairs(counts) do
      local by = _tonumber(count.by)
      if not by or by ~= by or by >= math.huge or by < 0 then
        validate.refuse("countJobs", "'" .. count.by .. "' is not a number to add")
      end
    end
    local key = queue .. "statistics:" .. day
    local size, added = guarded.call("HLEN", key), 0
    for _, count in _ipairs(counts) do
      if size + #counts <= MOST_FIELDS or _redis_call("HEXISTS", key, count.field) == 1 then
        _redis_call("HINCRBYFLOAT", key, count.field, count.by)
        added = added + 1
      end
    end
    _redis_call("EXPIRE", key, KEPT_S)
    return added
  end)
end

do -- depends
  local edges = require("edges")
  local validate = require("validate")
  redis.register_function("oq1_depends", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "depends", "now_ms")
    local on_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "depends", "on_count")
    local off_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "depends", "off_count")
    count_words("depends", #KEYS, 7, #ARGV, 4 + 1 * on_count + 1 * off_count)
    local on = {}
    for index = 1, on_count do
      local arg = 4 + (index - 1) * 1
      on[index] = {
        job_id = ARGV[arg + 1],
      }
    end
    local off = {}
    for index = 1, off_count do
      local arg = 4 + 1 * #on + (index - 1) * 1
      off[index] = {
        job_id = ARGV[arg + 1],
      }
    end
    local queue = queue_of("depends", KEYS[1], ":id") .. ":"
    if #on + #off > 100 then
      validate.refuse("depends", "at most 100 jobs a call, got " .. (#on + #off))
    end
    return edges.change(queue, job_id, on, off, now_ms)
  end)
end

do -- drain
  local draining = require("draining")
  local events = require("events")
  redis.register_function{ function_name = "oq1_drain", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local drain_delayed = flag(ARGV[1], "drain", "drain_delayed")
    local group = ARGV[2]
    local limit = ARGV[3] == "0" and 0 or whole(ARGV[3], "drain", "limit")
    count_words("drain", #KEYS, 5, #ARGV, 3)
    local queue = queue_of("drain", KEYS[1], ":stream") .. ":"
    local lifo_key = KEYS[4]
    local priority_key = KEYS[5]
    if limit == 0 then
      return 0
    end
    local removed = draining.stream(queue, group, limit)
    for _, key in _ipairs({ lifo_key, priority_key }) do
      if removed < limit then
        removed = removed + draining.list(queue, key, limit - removed)
      end
    end
    if removed < limit then
      removed = removed + draining.shares(queue, limit - removed)
    end
    if drain_delayed and removed < limit then
      removed = removed + draining.scheduled(queue, limit - removed)
    end
    if removed > 0 then
      events.emit(queue, "drained", removed)
    end
    return removed
  end }
end

do -- dueSchedulers
  local schedulers = require("schedulers")
  local validate = require("validate")
  redis.register_function("oq1_dueSchedulers", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "dueSchedulers", "now_ms")
    local limit = ARGV[2] == "0" and 0 or whole(ARGV[2], "dueSchedulers", "limit")
    count_words("dueSchedulers", #KEYS, 5, #ARGV, 2)
    local queue = queue_of("dueSchedulers", KEYS[1], ":schedulers") .. ":"
    local schedulers_key = KEYS[1]
    local schedulers_due_key = KEYS[2]
    validate.check_limit("dueSchedulers", limit)
    local found = {}
    for _, name in _ipairs(_redis_call("ZRANGEBYSCORE", schedulers_due_key, "-inf", now_ms, "LIMIT", 0, limit)) do
      local entry = _redis_call("HGET", schedulers_key, name)
      if entry then
        local fate, ended_ms = schedulers.awaited(queue, name, entry, now_ms)
        found[#found + 1] = { name, entry, fate, ended_ms }
      else
        _redis_call("ZREM", schedulers_due_key, name)
      end
    end
    return { schedulers.needs_full_look(queue) and 1 or 0, found }
  end)
end

do -- endMove
  local moving = require("moving")
  redis.register_function{ function_name = "oq1_endMove", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local token = ARGV[2]
    local arrived = flag(ARGV[3], "endMove", "arrived")
    local digest = ARGV[4]
    local now_ms = ARGV[5] == "0" and 0 or whole(ARGV[5], "endMove", "now_ms")
    count_words("endMove", #KEYS, 9, #ARGV, 5)
    local queue = queue_of("endMove", KEYS[1], ":stream") .. ":"
    return moving.finish(queue, job_id, token, arrived, digest, now_ms)
  end }
end

do -- exchange
  local dispatch = require("dispatch")
  local exchange = require("exchange")
  local outcomes = require("outcomes")
  local propagation = require("propagation")
  local validate = require("validate")
  redis.register_function{ function_name = "oq1_exchange", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "exchange", "now_ms")
    local group = ARGV[2]
    local consumer = ARGV[3]
    local want = ARGV[4] == "0" and 0 or whole(ARGV[4], "exchange", "want")
    local honor_pause = flag(ARGV[5], "exchange", "honor_pause")
    local cluster = flag(ARGV[6], "exchange", "cluster")
    local dead_letter = ARGV[7]
    local skip_events = flag(ARGV[8], "exchange", "skip_events")
    local skip_metrics = flag(ARGV[9], "exchange", "skip_metrics")
    local settlement_count = ARGV[10] == "0" and 0 or whole(ARGV[10], "exchange", "settlement_count")
    local hand_back_count = ARGV[11] == "0" and 0 or whole(ARGV[11], "exchange", "hand_back_count")
    local delivery_count = ARGV[12] == "0" and 0 or whole(ARGV[12], "exchange", "delivery_count")
    count_words("exchange", #KEYS, 12, #ARGV, 12 + 12 * settlement_count + 2 * hand_back_count + 2 * delivery_count)
    local settlements = {}
    for index = 1, settlement_count do
      local arg = 12 + (index - 1) * 12
      settlements[index] = {
        kind = ARGV[arg + 1],
        job_id = ARGV[arg + 2],
        entry_id = ARGV[arg + 3],
        taken_ms = ARGV[arg + 4] == "0" and 0 or whole(ARGV[arg + 4], "exchange", "taken_ms"),
        stalled_count = ARGV[arg + 5] == "0" and 0 or whole(ARGV[arg + 5], "exchange", "stalled_count"),
        payload = ARGV[arg + 6],
        wait_ms = ARGV[arg + 7] == "0" and 0 or whole(ARGV[arg + 7], "exchange", "wait_ms"),
        max_attempts = ARGV[arg + 8] == "0" and 0 or whole(ARGV[arg + 8], "exchange", "max_attempts"),
        extend = flag(ARGV[arg + 9], "exchange", "extend"),
        remove_mode = ARGV[arg + 10],
        remove_count = ARGV[arg + 11] == "0" and 0 or whole(ARGV[arg + 11], "exchange", "remove_count"),
        remove_age_s = ARGV[arg + 12] == "0" and 0 or whole(ARGV[arg + 12], "exchange", "remove_age_s"),
      }
    end
    local hand_backs = {}
    for index = 1, hand_back_count do
      local arg = 12 + 12 * #settlements + (index - 1) * 2
      hand_backs[index] = {
        job_id = ARGV[arg + 1],
        entry_id = ARGV[arg + 2],
      }
    end
    local deliveries = {}
    for index = 1, delivery_count do
      local arg = 12 + 12 * #settlements + 2 * #hand_backs + (index - 1) * 2
      deliveries[index] = {
        job_id = ARGV[arg + 1],
        entry_id = ARGV[arg + 2],
      }
    end
    local queue = queue_of("exchange", KEYS[1], ":stream") .. ":"
    -- A dead letter is a job like those of glidemq_addJob, with the name of the one that failed, and about it this data:
    -- `{"originalQueue","originalJobId","data","failedReason","attemptsMade"}`, attempts without the last. It is written
    -- with the failure or not at all. In a cluster the other queue may be on another server, and the caller has to add the
    -- letter; under its id, which is the same for each letter about one run, it may do so twice. Until then this queue keeps
    -- it in `outbox`, by time: if the caller dies, or this reply is lost, oq1_reclaim returns it again.
    --
    -- Only settled failures make dead letters: revoked and expired jobs need none, and this call does not see jobs that cost
    -- more than their bucket holds, or whose workers were lost (see oq1_reclaim).

    -- The dependents of a job that fails for good, for any reason, are decided in the same call, before retention can remove
    -- it. Dependents of a completed job are notified as by every client, and their rules are applied.

    local room = 100

    validate.check(settlements, hand_backs, deliveries, dead_letter)
    local self = exchange.new(queue, now_ms, {
      outcomes = propagation.new(queue, now_ms, room, cluster),
      group = group,
      consumer = consumer,
      cluster = cluster,
      dead_letter = dead_letter,
      skip_events = skip_events,
      skip_metrics = skip_metrics,
    })
    local verdicts = outcomes.settle(self, settlements)
    outcomes.hand_back(self, hand_backs, 1)
    exchange.flush(self)
    propagation.run(self.outcomes)
    local stopped = ""
    if want > 0 or deliveries[1] then
      stopped = dispatch.serve(self, deliveries, want, honor_pause)
      exchange.flush(self)
    end
    local _, elsewhere, remaining = _unpack(propagation.finish(self.outcomes))
    return { verdicts, self.started, elsewhere, stopped, self.letters, remaining }
  end }
end

do -- fire
  local bulk = require("bulk")
  local schedulers = require("schedulers")
  local validate = require("validate")
  redis.register_function("oq1_fire", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local token = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "fire", "now_ms")
    local looked_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "fire", "looked_ms")
    local job_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "fire", "job_count")
    local run_count = ARGV[5] == "0" and 0 or whole(ARGV[5], "fire", "run_count")
    local update_count = ARGV[6] == "0" and 0 or whole(ARGV[6], "fire", "update_count")
    local miss_count = ARGV[7] == "0" and 0 or whole(ARGV[7], "fire", "miss_count")
    count_words("fire", #KEYS, 9, #ARGV, 7 + 20 * job_count + 4 * run_count + 5 * update_count + 2 * miss_count)
    local jobs = {}
    for index = 1, job_count do
      local arg = 7 + (index - 1) * 20
      jobs[index] = {
        job_name = ARGV[arg + 1],
        data = ARGV[arg + 2],
        opts = ARGV[arg + 3],
        timestamp_ms = ARGV[arg + 4] == "0" and 0 or whole(ARGV[arg + 4], "fire", "timestamp_ms"),
        delay_ms = ARGV[arg + 5] == "0" and 0 or whole(ARGV[arg + 5], "fire", "delay_ms"),
        priority = ARGV[arg + 6] == "0" and 0 or whole(ARGV[arg + 6], "fire", "priority"),
        parent_id = ARGV[arg + 7],
        max_attempts = ARGV[arg + 8] == "0" and 0 or whole(ARGV[arg + 8], "fire", "max_attempts"),
        ordering_key = ARGV[arg + 9],
        group_concurrency = ARGV[arg + 10] == "0" and 0 or whole(ARGV[arg + 10], "fire", "group_concurrency"),
        group_rate_max = ARGV[arg + 11] == "0" and 0 or whole(ARGV[arg + 11], "fire", "group_rate_max"),
        group_rate_duration_ms = ARGV[arg + 12] == "0" and 0 or whole(ARGV[arg + 12], "fire", "group_rate_duration_ms"),
        tb_capacity = ARGV[arg + 13] == "0" and 0 or whole(ARGV[arg + 13], "fire", "tb_capacity"),
        tb_refill_rate = ARGV[arg + 14] == "0" and 0 or whole(ARGV[arg + 14], "fire", "tb_refill_rate"),
        cost = ARGV[arg + 15] == "0" and 0 or whole(ARGV[arg + 15], "fire", "cost"),
        ttl_ms = ARGV[arg + 16] == "0" and 0 or whole(ARGV[arg + 16], "fire", "ttl_ms"),
        custom_id = ARGV[arg + 17],
        lifo = flag(ARGV[arg + 18], "fire", "lifo"),
        parent_queue = ARGV[arg + 19],
        scheduler_name = ARGV[arg + 20],
      }
    end
    local runs = {}
    for index = 1, run_count do
      local arg = 7 + 20 * #jobs + (index - 1) * 4
      runs[index] = {
        name = ARGV[arg + 1],
        due_ms = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "fire", "due_ms"),
        previous = ARGV[arg + 3],
        overlap = ARGV[arg + 4],
      }
    end
    local updates = {}
    for index = 1, update_count do
      local arg = 7 + 20 * #jobs + 4 * #runs + (index - 1) * 5
      updates[index] = {
        name = ARGV[arg + 1],
        entry = ARGV[arg + 2],
        look_ms = ARGV[arg + 3] == "0" and 0 or whole(ARGV[arg + 3], "fire", "look_ms"),
        held_entry = ARGV[arg + 4],
        held_look_ms = ARGV[arg + 5] == "0" and 0 or whole(ARGV[arg + 5], "fire", "held_look_ms"),
      }
    end
    local misses = {}
    for index = 1, miss_count do
      local arg = 7 + 20 * #jobs + 4 * #runs + 5 * #updates + (index - 1) * 2
      misses[index] = {
        name = ARGV[arg + 1],
        due_ms = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "fire", "due_ms"),
      }
    end
    local queue = queue_of("fire", KEYS[5], ":id") .. ":"
    local lock_key = KEYS[1]
    local schedulers_looked_key = KEYS[4]
    if #jobs ~= #runs then
      validate.refuse("fire", "there are " .. #jobs .. " jobs and " .. #runs .. " runs")
    elseif _redis_call("GET", lock_key) ~= token then
      return "lost"
    end
    local replies, held = {}, {}
    for place, run in _ipairs(runs) do
      local job = jobs[place]
      -- A run that was made already is not held back by itself.
      local exists = _redis_call("EXISTS", queue .. "job:" .. job.custom_id) == 1
      if not exists and schedulers.holds_back(queue, run, now_ms) then
        replies[place], held[run.name] = "held", true
        schedulers.note(queue, run.name, run.due_ms, now_ms, "", run.overlap == "skip" and "overlap" or "queued")
      else
        replies[place] = bulk.add(queue, { job }, false)[1]
        if replies[place] == job.custom_id then
          schedulers.note(queue, run.name, run.due_ms, now_ms, job.custom_id, "fired")
        end
      end
    end
    for _, miss in _ipairs(misses) do
      schedulers.note(queue, miss.name, miss.due_ms, now_ms, "", "missed")
    end
    for _, update in _ipairs(updates) do
      if held[update.name] then
        schedulers.put(queue, update.name, update.held_entry, update.held_look_ms)
      else
        schedulers.put(queue, update.name, update.entry, update.look_ms)
      end
    end
    if looked_ms > 0 then
      _redis_call("SET", schedulers_looked_key, 1, "PX", looked_ms)
    end
    return replies
  end)
end

do -- followEvents
  local readers = require("readers")
  local validate = require("validate")
  redis.register_function{ function_name = "oq1_followEvents", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local reader = ARGV[1]
    local after = ARGV[2]
    local lease_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "followEvents", "lease_ms")
    count_words("followEvents", #KEYS, 1, #ARGV, 3)
    local queue = queue_of("followEvents", KEYS[1], ":events") .. ":"
    local events_key = KEYS[1]
    if reader == "" then
      validate.refuse("followEvents", "'reader' is empty")
    elseif lease_ms < 1 or lease_ms > 7 * 86400000 then
      validate.refuse("followEvents", "'lease_ms' is not from 1 to a week")
    end
    if after == "$" then
      local newest = _redis_call("XREVRANGE", events_key, "+", "-", "COUNT", 1)
      after = newest[1] and newest[1][1] or "0-0"
    end
    readers.follow(queue, reader, after, lease_ms)
    return after
  end }
end

do -- holdNodes
  local holding = require("holding")
  redis.register_function("oq1_holdNodes", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_count = ARGV[1] == "0" and 0 or whole(ARGV[1], "holdNodes", "job_count")
    count_words("holdNodes", #KEYS, 1, #ARGV, 1 + job_count)
    local job_ids = {}
    for index = 1, job_count do
      job_ids[index] = ARGV[1 + index]
    end
    local queue = queue_of("holdNodes", KEYS[1], ":stream") .. ":"
    local held = {}
    for _, job_id in _ipairs(job_ids) do
      if holding.hold(queue, job_id) then
        held[#held + 1] = job_id
      end
    end
    return held
  end)
end

do -- landJob
  local moving = require("moving")
  redis.register_function{ function_name = "oq1_landJob", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local token = ARGV[2]
    local kept = flag(ARGV[3], "landJob", "kept")
    local now_ms = ARGV[4] == "0" and 0 or whole(ARGV[4], "landJob", "now_ms")
    count_words("landJob", #KEYS, 9, #ARGV, 4)
    local queue = queue_of("landJob", KEYS[1], ":stream") .. ":"
    return moving.land(queue, job_id, token, kept, now_ms)
  end }
end

do -- mendGroup
  local groups = require("groups")
  local release = require("release")
  redis.register_function("oq1_mendGroup", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local name = ARGV[1]
    local seen_active = ARGV[2] == "0" and 0 or whole(ARGV[2], "mendGroup", "seen_active")
    local seen_next_seq = ARGV[3] == "0" and 0 or whole(ARGV[3], "mendGroup", "seen_next_seq")
    local active = ARGV[4] == "0" and 0 or whole(ARGV[4], "mendGroup", "active")
    local next_seq = ARGV[5] == "0" and 0 or whole(ARGV[5], "mendGroup", "next_seq")
    local now_ms = ARGV[6] == "0" and 0 or whole(ARGV[6], "mendGroup", "now_ms")
    count_words("mendGroup", #KEYS, 5, #ARGV, 6)
    local queue = queue_of("mendGroup", KEYS[1], ":stream") .. ":"
    -- The caller read these two numbers first, then every job of the queue. A job that starts or ends in between
    -- changes one of them: each start moves the turn, and each end, or a start out of turn, the count.

    local group = groups.load(queue, name)
    if group.active ~= seen_active or group.next_seq ~= seen_next_seq then
      return -1
    end
    groups.write(queue, name, "active", active, "nextSeq", next_seq)
    return release.promote(queue, name, groups.load(queue, name), now_ms)
  end)
end

do -- moveIn
  local moving = require("moving")
  local validate = require("validate")
  redis.register_function("oq1_moveIn", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local token = ARGV[2]
    local source = ARGV[3]
    local now_ms = ARGV[4] == "0" and 0 or whole(ARGV[4], "moveIn", "now_ms")
    local state = ARGV[5]
    local due_ms = ARGV[6] == "0" and 0 or whole(ARGV[6], "moveIn", "due_ms")
    local delay = ARGV[7]
    local reads = ARGV[8] == "0" and 0 or whole(ARGV[8], "moveIn", "reads")
    local field_count = ARGV[9] == "0" and 0 or whole(ARGV[9], "moveIn", "field_count")
    local line_count = ARGV[10] == "0" and 0 or whole(ARGV[10], "moveIn", "line_count")
    local signal_count = ARGV[11] == "0" and 0 or whole(ARGV[11], "moveIn", "signal_count")
    local parent_count = ARGV[12] == "0" and 0 or whole(ARGV[12], "moveIn", "parent_count")
    local dep_count = ARGV[13] == "0" and 0 or whole(ARGV[13], "moveIn", "dep_count")
    count_words("moveIn", #KEYS, 2, #ARGV, 13 + 2 * field_count + 1 * line_count + 1 * signal_count + 1 * parent_count + dep_count)
    local fields = {}
    for index = 1, field_count do
      local arg = 13 + (index - 1) * 2
      fields[index] = {
        name = ARGV[arg + 1],
        value = ARGV[arg + 2],
      }
    end
    local lines = {}
    for index = 1, line_count do
      local arg = 13 + 2 * #fields + (index - 1) * 1
      lines[index] = {
        line = ARGV[arg + 1],
      }
    end
    local signals = {}
    for index = 1, signal_count do
      local arg = 13 + 2 * #fields + 1 * #lines + (index - 1) * 1
      signals[index] = {
        signal = ARGV[arg + 1],
      }
    end
    local parents = {}
    for index = 1, parent_count do
      local arg = 13 + 2 * #fields + 1 * #lines + 1 * #signals + (index - 1) * 1
      parents[index] = {
        member = ARGV[arg + 1],
      }
    end
    local deps = {}
    for index = 1, dep_count do
      deps[index] = ARGV[13 + 2 * #fields + 1 * #lines + 1 * #signals + 1 * #parents + index]
    end
    local queue = queue_of("moveIn", KEYS[1], ":id") .. ":"
    local STATES = { waiting = true, delayed = true, prioritized = true, failed = true }

    local function column(items, name)
      local values = {}
      for index, item in _ipairs(items) do
        values[index] = item[name]
      end
      return values
    end

    if not STATES[state] or not delay:find("^%d*$") then
      validate.refuse("moveIn", "a job does not arrive in state '" .. state .. "' with delay '" .. delay .. "'")
    end
    local flat = {}
    for index, field in _ipairs(fields) do
      flat[2 * index - 1], flat[2 * index] = field.name, field.value
    end
    return moving.into(queue, job_id, token, source, now_ms, {
      state = state, due = due_ms, delay = delay, reads = reads, fields = flat, log = column(lines, "line"),
      signals = column(signals, "signal"), parents = column(parents, "member"), deps = deps,
    })
  end)
end

do -- moveOut
  local moving = require("moving")
  local validate = require("validate")
  redis.register_function("oq1_moveOut", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "moveOut", "now_ms")
    local target = ARGV[3]
    local token = ARGV[4]
    local delay = ARGV[5]
    local group = ARGV[6]
    count_words("moveOut", #KEYS, 6, #ARGV, 6)
    local queue = queue_of("moveOut", KEYS[1], ":stream") .. ":"
    validate.check_queue_name("moveOut", target)
    if target == "" or not delay:find("^%d*$") then
      validate.refuse("moveOut", "there is no target, or a malformed delay")
    end
    return moving.out(queue, job_id, now_ms, target, token, delay, group)
  end)
end

do -- noteAttempts
  local history = require("history")
  local lease = require("lease")
  local numbers = require("numbers")
  redis.register_function{ function_name = "oq1_noteAttempts", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local worker = ARGV[1]
    local host = ARGV[2]
    local now_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "noteAttempts", "now_ms")
    local attempt_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "noteAttempts", "attempt_count")
    count_words("noteAttempts", #KEYS, 1, #ARGV, 4 + 7 * attempt_count)
    local attempts = {}
    for index = 1, attempt_count do
      local arg = 4 + (index - 1) * 7
      attempts[index] = {
        job_id = ARGV[arg + 1],
        taken_ms = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "noteAttempts", "taken_ms"),
        stalled_count = ARGV[arg + 3] == "0" and 0 or whole(ARGV[arg + 3], "noteAttempts", "stalled_count"),
        kind = ARGV[arg + 4],
        error = ARGV[arg + 5],
        reason = ARGV[arg + 6],
        traceback = ARGV[arg + 7],
      }
    end
    local queue = queue_of("noteAttempts", KEYS[1], ":stream") .. ":"
    local FIELDS = { "state", "processedOn", "stalledCount", "attemptsMade" }

    local noted = 0
    for _, attempt in _ipairs(attempts) do
      local job, same = lease.look(queue, attempt, FIELDS)
      if same and job.state == "active" and attempt.kind == "" then
        history.append(queue, attempt.job_id, {
          event = "completed",
          worker = worker,
          host = host,
          attempt = (numbers.whole(job.attemptsMade) or 0) + 1,
          started = attempt.taken_ms,
          ended = now_ms,
        })
        noted = noted + 1
      elseif same and job.state == "active" then
        _redis_call(
          "HSET", queue .. "job:" .. attempt.job_id,
          "failureKind", attempt.kind, "traceback", attempt.traceback,
          -- Other clients count later attempts and leave these fields as they are: readers see by this that they are old.
          "failureAttempt", (numbers.whole(job.attemptsMade) or 0) + 1
        )
        history.append(queue, attempt.job_id, {
          event = "failed",
          worker = worker,
          host = host,
          ended = now_ms,
          kind = attempt.kind,
          error = attempt.error,
          reason = attempt.reason,
          traceback = attempt.traceback,
        })
        noted = noted + 1
      end
    end
    return noted
  end }
end

do -- noteFailures
  local lease = require("lease")
  local numbers = require("numbers")
  redis.register_function{ function_name = "oq1_noteFailures", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local failure_count = ARGV[1] == "0" and 0 or whole(ARGV[1], "noteFailures", "failure_count")
    count_words("noteFailures", #KEYS, 1, #ARGV, 1 + 5 * failure_count)
    local failures = {}
    for index = 1, failure_count do
      local arg = 1 + (index - 1) * 5
      failures[index] = {
        job_id = ARGV[arg + 1],
        taken_ms = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "noteFailures", "taken_ms"),
        stalled_count = ARGV[arg + 3] == "0" and 0 or whole(ARGV[arg + 3], "noteFailures", "stalled_count"),
        kind = ARGV[arg + 4],
        traceback = ARGV[arg + 5],
      }
    end
    local queue = queue_of("noteFailures", KEYS[1], ":stream") .. ":"
    local FIELDS = { "state", "processedOn", "stalledCount", "attemptsMade" }

    local noted = 0
    for _, failure in _ipairs(failures) do
      local job, same = lease.look(queue, failure, FIELDS)
      if same and job.state == "active" then
        _redis_call(
          "HSET", queue .. "job:" .. failure.job_id,
          "failureKind", failure.kind, "traceback", failure.traceback,
          -- Other clients count later attempts and leave these fields as they are: readers see by this that they are old.
          "failureAttempt", (numbers.whole(job.attemptsMade) or 0) + 1
        )
        noted = noted + 1
      end
    end
    return noted
  end }
end

do -- propagate
  local dependencies = require("dependencies")
  local propagation = require("propagation")
  local validate = require("validate")
  redis.register_function{ function_name = "oq1_propagate", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "propagate", "now_ms")
    local limit = ARGV[2] == "0" and 0 or whole(ARGV[2], "propagate", "limit")
    local news_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "propagate", "news_count")
    local job_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "propagate", "job_count")
    count_words("propagate", #KEYS, 5, #ARGV, 4 + 3 * news_count + job_count)
    local news = {}
    for index = 1, news_count do
      local arg = 4 + (index - 1) * 3
      news[index] = {
        dependent = ARGV[arg + 1],
        member = ARGV[arg + 2],
        outcome = ARGV[arg + 3],
      }
    end
    local job_ids = {}
    for index = 1, job_count do
      job_ids[index] = ARGV[4 + 3 * #news + index]
    end
    local queue = queue_of("propagate", KEYS[1], ":stream") .. ":"
    -- The submitter writes a waiting job's rule to its field `triggerRule`; without it, the rule is `all_success`. For
    -- `all_failed` and `one_failed` it also adds the member `prefix:{queue}:__rule__` to the job's dependencies: otherwise
    -- completions, which every glide-mq client counts by itself, would start it once all have completed. While a member
    -- `prefix:{queue}:__hold__` is among them, nothing is decided: the submitter completes it last, and calls this for the
    -- jobs that have ended by then. A job with the rule `always` runs at its first notification, or is not made to wait.
    --
    -- Written are, on a job that waits, the fields `depdone:{member}` and `depsCompleted` of completions, `depend:{member}`,
    -- `depsFailed` and `depsSkipped` of others; and where it must not run, it fails with `outcome` beside its
    -- `failedReason`. Told again, in any order with glidemq_completeChild, nothing is counted or decided twice.

    validate.check_limit("propagate", limit)
    for _, told in _ipairs(news) do
      if not dependencies.is_outcome(told.outcome) then
        validate.refuse("propagate", "'" .. told.outcome .. "' is no outcome")
      end
    end
    local outcomes = propagation.new(queue, now_ms, limit, true)
    for _, told in _ipairs(news) do
      propagation.news(outcomes, told)
    end
    for _, job_id in _ipairs(job_ids) do
      propagation.ended(outcomes, job_id)
    end
    return propagation.finish(outcomes)
  end }
end

do -- putBack
  local lists = require("lists")
  local placement = require("placement")
  local record = require("record")
  local shares = require("shares")
  local stream = require("stream")
  local withdrawal = require("withdrawal")
  redis.register_function("oq1_putBack", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "putBack", "now_ms")
    local limit = ARGV[3] == "0" and 0 or whole(ARGV[3], "putBack", "limit")
    count_words("putBack", #KEYS, 5, #ARGV, 3)
    local queue = queue_of("putBack", KEYS[1], ":stream") .. ":"
    local stream_key = KEYS[1]
    local scheduled_key = KEYS[2]
    local priority_key = KEYS[3]
    local lifo_key = KEYS[4]
    -- It becomes due at once: a set holds it only once, however often this is called, and promotion gives it its place.
    -- A worker that took it from the stream or, with this library, from a list is recorded there. A worker of another library that
    -- has popped it, and not yet started it, is seen in the count of list jobs alone.

    local WAITS = { waiting = true, delayed = true, prioritized = true }

    local function is_listed(share)
      return _redis_call("ZSCORE", scheduled_key, job_id)
        or withdrawal.find(queue, "priority", job_id)
        or withdrawal.find(queue, "lifo", job_id)
        or _redis_call("ZSCORE", queue .. "list-active:jobs", job_id)
        or shares.holds(queue, job_id, share)
    end

    local function is_on_stream()
      local found = false
      stream.walk(stream_key, function(_, fields)
        found = stream.field(fields, "jobId") == job_id
        return found
      end)
      return found
    end

    local function may_be_held(job)
      if job.lifo ~= "1" and record.priority(job) == 0 then
        return false
      end
      local active, taken, complete = lists.all(queue)
      return not complete or lists.counted(queue) > #active + #taken
    end

    local job = record.load(queue, job_id)
    if not job then
      return "not_found"
    elseif not WAITS[job.state] then
      return "elsewhere"
    end
    for _, size in _ipairs({
      _redis_call("XLEN", stream_key), _redis_call("LLEN", priority_key), _redis_call("LLEN", lifo_key),
    }) do
      if size > limit then
        return "too_many"
      end
    end
    if is_listed(job.share) or is_on_stream() then
      return "listed"
    elseif may_be_held(job) then
      return "held"
    end
    placement.later(queue, job_id, job, now_ms)
    _redis_call("HSET", queue .. "job:" .. job_id, "state", "delayed")
    return "put_back"
  end)
end

do -- putScheduler
  local schedulers = require("schedulers")
  redis.register_function("oq1_putScheduler", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local name = ARGV[1]
    local entry = ARGV[2]
    local look_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "putScheduler", "look_ms")
    count_words("putScheduler", #KEYS, 2, #ARGV, 3)
    local queue = queue_of("putScheduler", KEYS[1], ":schedulers") .. ":"
    return schedulers.put(queue, name, entry, look_ms)
  end)
end

do -- readJobs
  local validate = require("validate")
  redis.register_function{ function_name = "oq1_readJobs", flags = { "no-writes" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local most_bytes = ARGV[1] == "0" and 0 or whole(ARGV[1], "readJobs", "most_bytes")
    local field_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "readJobs", "field_count")
    local job_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "readJobs", "job_count")
    count_words("readJobs", #KEYS, 1, #ARGV, 3 + 1 * field_count + job_count)
    local fields = {}
    for index = 1, field_count do
      local arg = 3 + (index - 1) * 1
      fields[index] = {
        name = ARGV[arg + 1],
      }
    end
    local job_ids = {}
    for index = 1, job_count do
      job_ids[index] = ARGV[3 + 1 * #fields + index]
    end
    local queue = queue_of("readJobs", KEYS[1], ":stream") .. ":"
    if field_count == 0 then
      validate.refuse("readJobs", "no field is named")
    end
    local names, values, bytes = {}, {}, 0
    for place, field in _ipairs(fields) do
      names[place] = field.name
    end
    local count = 0
    for _, job_id in _ipairs(job_ids) do
      local found = _redis_call("HMGET", queue .. "job:" .. job_id, _unpack(names))
      for place = 1, #names do
        local value = found[place]
        count = count + 1
        values[count] = value
        bytes = bytes + (value and #value or 0)
      end
      if bytes > most_bytes then
        break
      end
    end
    return values
  end }
end

do -- reclaim
  local dead_letters = require("dead_letters")
  local guarded = require("guarded")
  local history = require("history")
  local numbers = require("numbers")
  local propagation = require("propagation")
  local reclaim = require("reclaim")
  local stalled = require("stalled")
  local suspension = require("suspension")
  local tags = require("tags")
  local validate = require("validate")
  local wake = require("wake")
  redis.register_function{ function_name = "oq1_reclaim", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "reclaim", "now_ms")
    local group = ARGV[2]
    local consumer = ARGV[3]
    local limit = ARGV[4] == "0" and 0 or whole(ARGV[4], "reclaim", "limit")
    local min_idle_ms = ARGV[5] == "0" and 0 or whole(ARGV[5], "reclaim", "min_idle_ms")
    local max_stalled_count = ARGV[6] == "0" and 0 or whole(ARGV[6], "reclaim", "max_stalled_count")
    local lock_duration_ms = ARGV[7] == "0" and 0 or whole(ARGV[7], "reclaim", "lock_duration_ms")
    local dead_letter = ARGV[8]
    local cluster = flag(ARGV[9], "reclaim", "cluster")
    count_words("reclaim", #KEYS, 9, #ARGV, 9)
    local queue = queue_of("reclaim", KEYS[1], ":stream") .. ":"
    -- The effects are those of glidemq_reclaimStalled, _reclaimStalledListJobs and _sweepSuspended, and dead letters as of
    -- oq1_exchange, so that a job that crashes every worker is kept there. Its reason begins with `crashed: `.

    validate.check_limit("reclaim", limit)
    validate.check_queue_name("reclaim", dead_letter)
    local self = { queue = queue, now = now_ms, cluster = cluster, dead_letter = dead_letter, letters = {} }
    local more_letters = dead_letters.overdue(self, now_ms - min_idle_ms)
    local outcomes = propagation.new(queue, now_ms, 100, cluster)
    local retried, failed = 0, {}
    local sweep = {
      group = group,
      min_idle_ms = min_idle_ms,
      lock_duration_ms = lock_duration_ms,
      most_stalls = max_stalled_count,
      now_ms = now_ms,
      limit = limit,
      notify = function(job_id, job, has_failed)
        history.append(queue, job_id, {
          event = "stalled",
          ended = now_ms,
          started = numbers.whole(job.processedOn),
          kind = "stalled",
          reason = has_failed and stalled.REASON or "its worker was lost",
        })
        if has_failed then
          failed[#failed + 1] = job_id
          dead_letters.send(self, job_id, job, "crashed: " .. stalled.REASON, 0)
        else
          retried = retried + 1
        end
      end,
    }
    local _, more_entries = reclaim.entries(queue, consumer, sweep)
    local _, more_list_jobs = reclaim.list_jobs(queue, sweep)
    local timed_out = suspension.sweep(queue, now_ms)
    tags.sweep_any(queue)
    for _, index in _ipairs({ "schedulers:due", "flows", "flows:due", "flows:ended", "moving" }) do
      guarded.call("ZCARD", queue .. index) -- clients write there without a function, and would be refused
    end
    local _, elsewhere, remaining = _unpack(propagation.finish(outcomes))
    if retried > 0 then
      wake.for_lists(queue)
    end
    local more = (more_entries or more_list_jobs or more_letters) and 1 or 0
    return { retried, failed, more, self.letters, elsewhere, remaining, timed_out }
  end }
end

do -- releaseGraph
  local holding = require("holding")
  local propagation = require("propagation")
  local validate = require("validate")
  redis.register_function("oq1_releaseGraph", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "releaseGraph", "now_ms")
    local limit = ARGV[2] == "0" and 0 or whole(ARGV[2], "releaseGraph", "limit")
    local job_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "releaseGraph", "job_count")
    count_words("releaseGraph", #KEYS, 6, #ARGV, 3 + job_count)
    local job_ids = {}
    for index = 1, job_count do
      job_ids[index] = ARGV[3 + index]
    end
    local queue = queue_of("releaseGraph", KEYS[1], ":stream") .. ":"
    validate.check_limit("releaseGraph", limit)
    local outcomes = propagation.new(queue, now_ms, limit, true)
    for _, job_id in _ipairs(job_ids) do
      holding.release(outcomes, job_id)
    end
    return propagation.finish(outcomes)
  end)
end

do -- releaseJob
  local events = require("events")
  local history = require("history")
  local lists = require("lists")
  local placement = require("placement")
  local record = require("record")
  local stalled = require("stalled")
  local stream = require("stream")
  local wake = require("wake")
  redis.register_function{ function_name = "oq1_releaseJob", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "releaseJob", "now_ms")
    local group = ARGV[3]
    count_words("releaseJob", #KEYS, 6, #ARGV, 3)
    local queue = queue_of("releaseJob", KEYS[1], ":stream") .. ":"
    local stream_key = KEYS[1]
    local MOST_HELD, PAGE = 1000, 250

    -- For jobs that another library made ready again: their records name no entry, and they are older than theirs.
    local function settle_held()
      local looked, found = 0, nil
      stream.pages(stream_key, PAGE, function(page)
        for _, entry in _ipairs(page) do
          if stream.field(entry[2], "jobId") == job_id and stream.is_held(stream_key, group, entry[1]) then
            found = entry[1]
            return true
          end
        end
        looked = looked + #page
        return looked >= MOST_HELD
      end)
      if found then
        stream.settle(queue, group, found)
      end
      return found ~= nil
    end

    local job = record.load(queue, job_id)
    if not job then
      return "not_found"
    elseif job.state ~= "active" then
      return "not_active"
    end
    if lists.holds(job) then
      lists.leave(queue, job_id)
    elseif not stream.remove(queue, group, job_id, job) and not settle_held() then
      return "not_in_stream"
    end
    history.append(queue, job_id, { event = "released", started = _tonumber(job.processedOn), ended = now_ms })
    stalled.reset(queue, job_id, job, now_ms)
    placement.ready(queue, job_id, job)
    events.emit(queue, "released", job_id)
    wake.released(queue, job_id)
    return "ok"
  end }
end

do -- releasePools
  local pools = require("pools")
  local validate = require("validate")
  redis.register_function{ function_name = "oq1_releasePools", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "releasePools", "now_ms")
    local token = ARGV[2]
    local taken_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "releasePools", "taken_ms")
    local claim_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "releasePools", "claim_count")
    count_words("releasePools", #KEYS, 1, #ARGV, 4 + 2 * claim_count)
    local claims = {}
    for index = 1, claim_count do
      local arg = 4 + (index - 1) * 2
      claims[index] = {
        pool = ARGV[arg + 1],
        weight = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "releasePools", "weight"),
      }
    end
    local queue = queue_of("releasePools", KEYS[1], ":slots") .. ":"
    local _, names = validate.claims("releasePools", claims)
    local self = pools.open(queue, now_ms)
    pools.release(self, token, taken_ms, names)
    return pools.wake(self, names)
  end }
end

do -- relist
  local lists = require("lists")
  local placement = require("placement")
  local stalled = require("stalled")
  redis.register_function{ function_name = "oq1_relist", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "relist", "now_ms")
    local consumer = ARGV[2]
    local known_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "relist", "known_count")
    count_words("relist", #KEYS, 4, #ARGV, 3 + 1 * known_count)
    local known = {}
    for index = 1, known_count do
      local arg = 3 + (index - 1) * 1
      known[index] = {
        job_id = ARGV[arg + 1],
      }
    end
    local queue = queue_of("relist", KEYS[1], ":stream") .. ":"
    -- Jobs of the stream are found among the consumer's pending entries. The record of a list job says which consumer
    -- started it, if that start was the last. The job has not run, so this does not count as stalled.

    local is_known = {}
    for _, job in _ipairs(known) do
      is_known[job.job_id] = true
    end
    local count = 0
    for _, found in _ipairs((lists.indexed(queue))) do
      local job_id, job = found.id, found.job
      local taker = _redis_call("HGET", queue .. "job:" .. job_id, "takenBy")
      if not is_known[job_id] and taker == lists.taker(consumer, job.processedOn or "") then
        lists.leave(queue, job_id)
        stalled.reset(queue, job_id, job, now_ms)
        placement.ready(queue, job_id, job)
        count = count + 1
      end
    end
    return count
  end }
end

do -- removeJob
  local events = require("events")
  local record = require("record")
  local removal = require("removal")
  local stream = require("stream")
  redis.register_function{ function_name = "oq1_removeJob", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local group = ARGV[2]
    count_words("removeJob", #KEYS, 5, #ARGV, 2)
    local queue = queue_of("removeJob", KEYS[1], ":stream") .. ":"
    local job = record.load(queue, job_id)
    if job and job.state == "waiting" and group ~= "" then
      stream.remove(queue, group, job_id, job)
    end
    if not removal.remove(queue, job_id) then
      return 0
    end
    events.emit(queue, "removed", job_id)
    return 1
  end }
end

do -- removePool
  local pools = require("pools")
  redis.register_function{ function_name = "oq1_removePool", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "removePool", "now_ms")
    local pool = ARGV[2]
    count_words("removePool", #KEYS, 1, #ARGV, 2)
    local queue = queue_of("removePool", KEYS[1], ":slots") .. ":"
    local slots_key = KEYS[1]
    local self = pools.open(queue, now_ms)
    if not pools.slots(self, pool) then
      return "not_found"
    elseif pools.is_used(self, pool) then
      return "in_use"
    end
    _redis_call("HDEL", slots_key, pool)
    return "removed"
  end }
end

do -- removeUnneeded
  local dependents = require("dependents")
  local events = require("events")
  local record = require("record")
  local removal = require("removal")
  local stream = require("stream")
  redis.register_function{ function_name = "oq1_removeUnneeded", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local group = ARGV[2]
    count_words("removeUnneeded", #KEYS, 5, #ARGV, 2)
    local queue = queue_of("removeUnneeded", KEYS[1], ":stream") .. ":"
    -- Jobs that wait in other queues count by being named: their records may be on another server.
    local function is_needed()
      local names = _redis_call("HMGET", queue .. "job:" .. job_id, "parentId", "parentQueue")
      local found = false
      dependents.each(queue, job_id, { parentId = names[1], parentQueue = names[2] }, true, function(other_queue, other_id)
        if found or other_queue ~= queue then
          found = true
          return
        end
        local member = queue .. job_id
        local known = _redis_call(
          "HMGET", queue .. "job:" .. other_id,
          "state", "depdone:" .. member, "depend:" .. member
        )
        found = known[1] == "waiting-children" and not known[2] and not known[3]
      end)
      return found
    end

    local job = record.load(queue, job_id)
    if not job then
      return 0
    elseif not record.has_ended(job) and is_needed() then
      return -1
    end
    if job.state == "waiting" then
      stream.remove(queue, group, job_id, job)
    end
    removal.remove(queue, job_id)
    events.emit(queue, "removed", job_id)
    return 1
  end }
end

do -- renameDependency
  local moving = require("moving")
  redis.register_function("oq1_renameDependency", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local old = ARGV[1]
    local new = ARGV[2]
    local job_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "renameDependency", "job_count")
    count_words("renameDependency", #KEYS, 1, #ARGV, 3 + job_count)
    local job_ids = {}
    for index = 1, job_count do
      job_ids[index] = ARGV[3 + index]
    end
    local queue = queue_of("renameDependency", KEYS[1], ":stream") .. ":"
    local renamed = 0
    for _, job_id in _ipairs(job_ids) do
      renamed = renamed + moving.rename(queue, job_id, old, new)
    end
    return renamed
  end)
end

do -- renew
  local lease = require("lease")
  redis.register_function{ function_name = "oq1_renew", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "renew", "now_ms")
    local lease_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "renew", "lease_count")
    count_words("renew", #KEYS, 1, #ARGV, 2 + 3 * lease_count)
    local leases = {}
    for index = 1, lease_count do
      local arg = 2 + (index - 1) * 3
      leases[index] = {
        job_id = ARGV[arg + 1],
        taken_ms = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "renew", "taken_ms"),
        stalled_count = ARGV[arg + 3] == "0" and 0 or whole(ARGV[arg + 3], "renew", "stalled_count"),
      }
    end
    local queue = queue_of("renew", KEYS[1], ":stream") .. ":"
    local outcomes = {}
    for index, held in _ipairs(leases) do
      local job, same = lease.look(queue, held, lease.RENEWAL)
      if same and job.state == "active" then
        _redis_call("HSET", queue .. "job:" .. held.job_id, "lastActive", now_ms)
        outcomes[index] = job.revoked == "1" and 2 or 1
      else
        outcomes[index] = 0
      end
    end
    return outcomes
  end }
end

do -- renewPools
  local pools = require("pools")
  local validate = require("validate")
  redis.register_function{ function_name = "oq1_renewPools", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "renewPools", "now_ms")
    local lease_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "renewPools", "lease_count")
    count_words("renewPools", #KEYS, 1, #ARGV, 2 + 5 * lease_count)
    local leases = {}
    for index = 1, lease_count do
      local arg = 2 + (index - 1) * 5
      leases[index] = {
        token = ARGV[arg + 1],
        taken_ms = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "renewPools", "taken_ms"),
        lease_ms = ARGV[arg + 3] == "0" and 0 or whole(ARGV[arg + 3], "renewPools", "lease_ms"),
        pool = ARGV[arg + 4],
        weight = ARGV[arg + 5] == "0" and 0 or whole(ARGV[arg + 5], "renewPools", "weight"),
      }
    end
    local queue = queue_of("renewPools", KEYS[1], ":slots") .. ":"
    if #leases > 100 then
      validate.refuse("renewPools", "at most 100 leases are renewed in one call")
    end
    for _, lease in _ipairs(leases) do
      if lease.weight < 1 or lease.lease_ms < 1 then
        validate.refuse("renewPools", "a weight and a lease must be at least 1")
      end
    end
    local self, outcomes = pools.open(queue, now_ms), {}
    for index, lease in _ipairs(leases) do
      local renewed = pools.renew(self, lease.token, lease.taken_ms, lease.lease_ms, lease.pool, lease.weight)
      outcomes[index] = renewed and 1 or 0
    end
    return outcomes
  end }
end

do -- replaceScheduler
  local schedulers = require("schedulers")
  redis.register_function("oq1_replaceScheduler", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local name = ARGV[1]
    local read = ARGV[2]
    local entry = ARGV[3]
    local look_ms = ARGV[4] == "0" and 0 or whole(ARGV[4], "replaceScheduler", "look_ms")
    count_words("replaceScheduler", #KEYS, 3, #ARGV, 4)
    local queue = queue_of("replaceScheduler", KEYS[2], ":schedulers") .. ":"
    local lock_key = KEYS[1]
    local schedulers_key = KEYS[2]
    if _redis_call("EXISTS", lock_key) == 1 then
      return "locked"
    elseif (_redis_call("HGET", schedulers_key, name) or "") ~= read then
      return "changed"
    end
    schedulers.put(queue, name, entry, look_ms)
    return "ok"
  end)
end

do -- reportProgress
  local events = require("events")
  redis.register_function("oq1_reportProgress", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local progress = ARGV[2]
    count_words("reportProgress", #KEYS, 1, #ARGV, 2)
    local queue = queue_of("reportProgress", KEYS[1], ":events") .. ":"
    _redis_call("HSET", queue .. "job:" .. job_id, "progress", progress)
    events.emit(queue, "progress", job_id, "data", progress)
    return 1
  end)
end

do -- reportUsage
  local events = require("events")
  local usage = require("usage")
  redis.register_function("oq1_reportUsage", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local minute_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "reportUsage", "minute_ms")
    local told = ARGV[3]
    local field_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "reportUsage", "field_count")
    count_words("reportUsage", #KEYS, 1, #ARGV, 4 + 2 * field_count)
    local fields = {}
    for index = 1, field_count do
      local arg = 4 + (index - 1) * 2
      fields[index] = {
        name = ARGV[arg + 1],
        value = ARGV[arg + 2],
      }
    end
    local queue = queue_of("reportUsage", KEYS[1], ":events") .. ":"
    local report = usage.read(fields)
    local job_key = queue .. "job:" .. job_id
    if _redis_call("EXISTS", job_key) == 0 then
      return "missing"
    elseif _redis_call("EXISTS", job_key .. ":usage-lock") == 1 then
      return "locked"
    end
    usage.replace(queue, job_key, report, _string_format("%.0f", minute_ms))
    events.emit(queue, "usage", job_id, "data", told)
    return "ok"
  end)
end

do -- retag
  local tags = require("tags")
  redis.register_function("oq1_retag", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "retag", "now_ms")
    local added_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "retag", "added_count")
    local removed_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "retag", "removed_count")
    count_words("retag", #KEYS, 1, #ARGV, 4 + 1 * added_count + 1 * removed_count)
    local added = {}
    for index = 1, added_count do
      local arg = 4 + (index - 1) * 1
      added[index] = {
        name = ARGV[arg + 1],
      }
    end
    local removed = {}
    for index = 1, removed_count do
      local arg = 4 + 1 * #added + (index - 1) * 1
      removed[index] = {
        name = ARGV[arg + 1],
      }
    end
    local queue = queue_of("retag", KEYS[1], "job:" .. job_id)
    local key = queue .. "job:" .. job_id
    if _redis_call("EXISTS", key) == 0 then
      return "not_found"
    end
    local drop, has, names, entered, left = {}, {}, {}, {}, {}
    for _, tag in _ipairs(removed) do
      drop[tag.name] = true
    end
    for _, name in _ipairs(tags.read(_redis_call("HGET", key, "tags") or nil)) do
      has[name] = true
      local list = drop[name] and left or names
      list[#list + 1] = name
    end
    for _, tag in _ipairs(added) do
      if not has[tag.name] then
        has[tag.name] = true
        names[#names + 1], entered[#entered + 1] = tag.name, tag.name
      end
    end
    if #names > tags.MOST then
      return "too_many"
    end
    _redis_call("HSET", key, "tags", names[1] and _cjson_encode(names) or "[]")
    tags.enter(queue, job_id, entered, now_ms)
    tags.leave(queue, job_id, left)
    return "ok"
  end)
end

do -- retryJob
  local history = require("history")
  local record = require("record")
  local retry = require("retry")
  redis.register_function("oq1_retryJob", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "retryJob", "now_ms")
    count_words("retryJob", #KEYS, 3, #ARGV, 2)
    local queue = queue_of("retryJob", KEYS[1], "job:" .. job_id)
    local failed_key = KEYS[2]
    local job = record.load(queue, job_id)
    if not job then
      return "not_found"
    elseif job.state ~= "failed" then
      return "not_failed"
    end
    _redis_call("ZREM", failed_key, job_id)
    history.append(queue, job_id, { event = "retried", ended = now_ms })
    retry.afresh(queue, job_id, job, now_ms)
    return "ok"
  end)
end

do -- retryNodes
  local graph_retry = require("graph_retry")
  local propagation = require("propagation")
  redis.register_function("oq1_retryNodes", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "retryNodes", "now_ms")
    local held = flag(ARGV[2], "retryNodes", "held")
    local news_count = ARGV[3] == "0" and 0 or whole(ARGV[3], "retryNodes", "news_count")
    local job_count = ARGV[4] == "0" and 0 or whole(ARGV[4], "retryNodes", "job_count")
    count_words("retryNodes", #KEYS, 6, #ARGV, 4 + 2 * news_count + job_count)
    local news = {}
    for index = 1, news_count do
      local arg = 4 + (index - 1) * 2
      news[index] = {
        dependent = ARGV[arg + 1],
        member = ARGV[arg + 2],
      }
    end
    local job_ids = {}
    for index = 1, job_count do
      job_ids[index] = ARGV[4 + 2 * #news + index]
    end
    local queue = queue_of("retryNodes", KEYS[1], ":stream") .. ":"
    -- To retry jobs of several calls or queues, all calls hold them, in any order; then the other queues are notified; then
    -- all are released. So none starts, or fails again, before its dependencies are back in their former states.

    local outcomes = propagation.new(queue, now_ms, 100, true)
    local revived, elsewhere = graph_retry.all(outcomes, job_ids, news, held)
    local _, untold, remaining = _unpack(propagation.finish(outcomes))
    return { revived, elsewhere, untold, remaining }
  end)
end

do -- revoke
  local history = require("history")
  local propagation = require("propagation")
  local revocation = require("revocation")
  local wake = require("wake")
  redis.register_function{ function_name = "oq1_revoke", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "revoke", "now_ms")
    local group = ARGV[3]
    count_words("revoke", #KEYS, 6, #ARGV, 3)
    local queue = queue_of("revoke", KEYS[1], ":stream") .. ":"
    -- Jobs that wait in other queues are decided about, too, unless these may be on other servers of a cluster. They, and
    -- those beyond the bound, are notified when the reconciler reads their flow.

    local outcomes = propagation.new(queue, now_ms, 100)
    history.append(queue, job_id, { event = "cancelled", ended = now_ms })
    local reply = revocation.revoke(queue, job_id, now_ms, group)
    propagation.finish(outcomes)
    if reply == "flagged" then
      wake.cancel(queue, job_id)
    end
    return reply
  end }
end

do -- setPool
  local pools = require("pools")
  local validate = require("validate")
  redis.register_function("oq1_setPool", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "setPool", "now_ms")
    local pool = ARGV[2]
    local count = ARGV[3] == "0" and 0 or whole(ARGV[3], "setPool", "count")
    count_words("setPool", #KEYS, 1, #ARGV, 3)
    local queue = queue_of("setPool", KEYS[1], ":slots") .. ":"
    local slots_key = KEYS[1]
    if pool == "" or pool:find("[{}:]") then
      validate.refuse("setPool", "'" .. pool .. "' is not the name of a pool")
    elseif count < 0 or count > 1000 then
      validate.refuse("setPool", "a pool has 0 to 1000 slots")
    end
    _redis_call("HSET", slots_key, pool, _string_format("%.0f", count))
    return pools.wake(pools.open(queue, now_ms), { pool })
  end)
end

do -- skipWaiters
  local pools = require("pools")
  local validate = require("validate")
  redis.register_function{ function_name = "oq1_skipWaiters", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "skipWaiters", "now_ms")
    local waiter_count = ARGV[2] == "0" and 0 or whole(ARGV[2], "skipWaiters", "waiter_count")
    count_words("skipWaiters", #KEYS, 1, #ARGV, 2 + 2 * waiter_count)
    local waiters = {}
    for index = 1, waiter_count do
      local arg = 2 + (index - 1) * 2
      waiters[index] = {
        token = ARGV[arg + 1],
        gone = flag(ARGV[arg + 2], "skipWaiters", "gone"),
      }
    end
    local queue = queue_of("skipWaiters", KEYS[1], ":slots") .. ":"
    if #waiters > 100 then
      validate.refuse("skipWaiters", "at most 100 waiting jobs are skipped in one call")
    end
    local self, names, seen = pools.open(queue, now_ms), {}, {}
    for _, waiter in _ipairs(waiters) do
      for _, name in _ipairs(pools.skip(self, waiter.token, waiter.gone)) do
        if not seen[name] then
          seen[name], names[#names + 1] = true, name
        end
      end
    end
    return pools.wake(self, names)
  end }
end

do -- startParked
  local events = require("events")
  local placement = require("placement")
  local record = require("record")
  local validate = require("validate")
  local wake = require("wake")
  redis.register_function("oq1_startParked", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_count = ARGV[1] == "0" and 0 or whole(ARGV[1], "startParked", "job_count")
    count_words("startParked", #KEYS, 4, #ARGV, 1 + 1 * job_count)
    local jobs = {}
    for index = 1, job_count do
      local arg = 1 + (index - 1) * 1
      jobs[index] = {
        job_id = ARGV[arg + 1],
      }
    end
    local queue = queue_of("startParked", KEYS[1], ":stream") .. ":"
    local scheduled_key = KEYS[2]
    -- A list and not the stream: there the job would be behind the whole backlog, while slots are kept for it.

    local READY = { waiting = true, prioritized = true }

    local function start(job_id)
      local job = record.load(queue, job_id)
      if not job or record.has_ended(job) then
        return "g"
      elseif job.state == "active" then
        return "a"
      elseif READY[job.state] then
        return "r"
      elseif job.state ~= "delayed" or _redis_call("ZREM", scheduled_key, job_id) == 0 then
        return "l"
      end
      _redis_call("HSET", queue .. "job:" .. job_id, "state", "waiting", "delay", 0, "takenFrom", "list")
      placement.first(queue, job_id, job)
      events.emit(queue, "promoted", job_id)
      return "r"
    end

    if #jobs > 100 then
      validate.refuse("startParked", "at most 100 jobs are made ready in one call")
    end
    if _redis_call("HGET", queue .. "meta", "paused") == "1" then
      return _string_rep("l", #jobs)
    end
    local letters = {}
    for index, job in _ipairs(jobs) do
      letters[index] = start(job.job_id)
    end
    wake.one(queue, "ready")
    return _table_concat(letters)
  end)
end

do -- submitGraph
  local submission = require("submission")
  redis.register_function("oq1_submitGraph", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "submitGraph", "now_ms")
    local held = flag(ARGV[2], "submitGraph", "held")
    local flow_id = ARGV[3]
    local record = ARGV[4]
    local node_count = ARGV[5] == "0" and 0 or whole(ARGV[5], "submitGraph", "node_count")
    local edge_count = ARGV[6] == "0" and 0 or whole(ARGV[6], "submitGraph", "edge_count")
    local foreign_count = ARGV[7] == "0" and 0 or whole(ARGV[7], "submitGraph", "foreign_count")
    local outside_count = ARGV[8] == "0" and 0 or whole(ARGV[8], "submitGraph", "outside_count")
    local rule_count = ARGV[9] == "0" and 0 or whole(ARGV[9], "submitGraph", "rule_count")
    count_words("submitGraph", #KEYS, 9, #ARGV, 9 + 20 * node_count + 3 * edge_count + 3 * foreign_count + 3 * outside_count + 2 * rule_count)
    local nodes = {}
    for index = 1, node_count do
      local arg = 9 + (index - 1) * 20
      nodes[index] = {
        job_name = ARGV[arg + 1],
        data = ARGV[arg + 2],
        opts = ARGV[arg + 3],
        timestamp_ms = ARGV[arg + 4] == "0" and 0 or whole(ARGV[arg + 4], "submitGraph", "timestamp_ms"),
        delay_ms = ARGV[arg + 5] == "0" and 0 or whole(ARGV[arg + 5], "submitGraph", "delay_ms"),
        priority = ARGV[arg + 6] == "0" and 0 or whole(ARGV[arg + 6], "submitGraph", "priority"),
        parent_id = ARGV[arg + 7],
        max_attempts = ARGV[arg + 8] == "0" and 0 or whole(ARGV[arg + 8], "submitGraph", "max_attempts"),
        ordering_key = ARGV[arg + 9],
        group_concurrency = ARGV[arg + 10] == "0" and 0 or whole(ARGV[arg + 10], "submitGraph", "group_concurrency"),
        group_rate_max = ARGV[arg + 11] == "0" and 0 or whole(ARGV[arg + 11], "submitGraph", "group_rate_max"),
        group_rate_duration_ms = ARGV[arg + 12] == "0" and 0 or whole(ARGV[arg + 12], "submitGraph", "group_rate_duration_ms"),
        tb_capacity = ARGV[arg + 13] == "0" and 0 or whole(ARGV[arg + 13], "submitGraph", "tb_capacity"),
        tb_refill_rate = ARGV[arg + 14] == "0" and 0 or whole(ARGV[arg + 14], "submitGraph", "tb_refill_rate"),
        cost = ARGV[arg + 15] == "0" and 0 or whole(ARGV[arg + 15], "submitGraph", "cost"),
        ttl_ms = ARGV[arg + 16] == "0" and 0 or whole(ARGV[arg + 16], "submitGraph", "ttl_ms"),
        custom_id = ARGV[arg + 17],
        lifo = flag(ARGV[arg + 18], "submitGraph", "lifo"),
        parent_queue = ARGV[arg + 19],
        scheduler_name = ARGV[arg + 20],
      }
    end
    local edges = {}
    for index = 1, edge_count do
      local arg = 9 + 20 * #nodes + (index - 1) * 3
      edges[index] = {
        dependent = ARGV[arg + 1] == "0" and 0 or whole(ARGV[arg + 1], "submitGraph", "dependent"),
        dependency = ARGV[arg + 2] == "0" and 0 or whole(ARGV[arg + 2], "submitGraph", "dependency"),
        weak = flag(ARGV[arg + 3], "submitGraph", "weak"),
      }
    end
    local foreign = {}
    for index = 1, foreign_count do
      local arg = 9 + 20 * #nodes + 3 * #edges + (index - 1) * 3
      foreign[index] = {
        dependent = ARGV[arg + 1] == "0" and 0 or whole(ARGV[arg + 1], "submitGraph", "dependent"),
        member = ARGV[arg + 2],
        weak = flag(ARGV[arg + 3], "submitGraph", "weak"),
      }
    end
    local outside = {}
    for index = 1, outside_count do
      local arg = 9 + 20 * #nodes + 3 * #edges + 3 * #foreign + (index - 1) * 3
      outside[index] = {
        dependency = ARGV[arg + 1] == "0" and 0 or whole(ARGV[arg + 1], "submitGraph", "dependency"),
        queue_name = ARGV[arg + 2],
        job_id = ARGV[arg + 3],
      }
    end
    local rules = {}
    for index = 1, rule_count do
      local arg = 9 + 20 * #nodes + 3 * #edges + 3 * #foreign + 3 * #outside + (index - 1) * 2
      rules[index] = {
        place = ARGV[arg + 1] == "0" and 0 or whole(ARGV[arg + 1], "submitGraph", "place"),
        rule = ARGV[arg + 2],
      }
    end
    local queue = queue_of("submitGraph", KEYS[1], ":id") .. ":"
    local flow_key = KEYS[8]
    local flows_key = KEYS[9]
    -- A graph of more nodes, or of several queues, is submitted in parts: an edge between two of them is in both, as
    -- `foreign` in the dependent's part and as `outside` in the dependency's. `held` then keeps every node from starting
    -- before all parts are stored; submitting again completes an interrupted submission.
    --
    -- The record of the flow is written once, and not replaced; its state is `submitting` while nodes are held.

    local graph = { nodes = nodes, edges = edges, foreign = foreign, outside = outside, rules = rules }
    submission.check(queue, graph)
    if record ~= "" then
      submission.note(flow_key, flows_key, flow_id, record, now_ms, held)
    end
    return submission.write(queue, graph, now_ms, flow_id, held)
  end)
end

do -- tagged
  local tags = require("tags")
  local validate = require("validate")
  redis.register_function("oq1_tagged", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local tag = ARGV[1]
    local offset = ARGV[2] == "0" and 0 or whole(ARGV[2], "tagged", "offset")
    local limit = ARGV[3] == "0" and 0 or whole(ARGV[3], "tagged", "limit")
    count_words("tagged", #KEYS, 1, #ARGV, 3)
    local queue = queue_of("tagged", KEYS[1], ":stream") .. ":"
    if limit < 1 or limit > 1000 then
      validate.refuse("tagged", "the limit must be 1 to 1000")
    end
    local found, more = tags.page(queue, tag, offset, limit)
    return { found, more and 1 or 0 }
  end)
end

do -- tick
  local lists = require("lists")
  local promotion = require("promotion")
  local propagation = require("propagation")
  local schedulers = require("schedulers")
  local shares = require("shares")
  local wake = require("wake")
  redis.register_function{ function_name = "oq1_tick", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "tick", "now_ms")
    local heal = flag(ARGV[2], "tick", "heal")
    count_words("tick", #KEYS, 8, #ARGV, 2)
    local queue = queue_of("tick", KEYS[1], ":scheduled") .. ":"
    local scheduled_key = KEYS[1]
    local ratelimited_key = KEYS[4]
    local meta_key = KEYS[5]
    local schedulers_key = KEYS[6]
    local outcomes = propagation.new(queue, now_ms, 100) -- jobs may expire, and others wait for them
    local moved = promotion.due(queue, now_ms, 100, true) + promotion.limited(queue, now_ms, 100)
    propagation.finish(outcomes)
    shares.mend(queue)
    if heal then
      lists.heal(queue)
    end
    wake.for_lists(queue)
    local time = _redis_call("TIME")
    local settings = _redis_call("HMGET", meta_key, "paused", "rateLimitMax", "rateLimitDuration")
    return {
      moved,
      promotion.next_due(scheduled_key, ratelimited_key, queue, now_ms),
      _redis_call("HLEN", schedulers_key),
      settings[1] == "1" and 1 or 0,
      _tonumber(settings[2]) or 0,
      _tonumber(settings[3]) or 0,
      time[1] * 1000 + _math_floor(time[2] / 1000),
      schedulers.next_look(queue),
    }
  end }
end

do -- track
  local tracking = require("tracking")
  local validate = require("validate")
  redis.register_function("oq1_track", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local job_id = ARGV[1]
    local now_ms = ARGV[2] == "0" and 0 or whole(ARGV[2], "track", "now_ms")
    local is_tracked = flag(ARGV[3], "track", "is_tracked")
    local limit = ARGV[4] == "0" and 0 or whole(ARGV[4], "track", "limit")
    count_words("track", #KEYS, 4, #ARGV, 4)
    local queue = queue_of("track", KEYS[1], ":id") .. ":"
    local tracked_key = KEYS[2]
    validate.check_limit("track", limit)
    if limit > 1000 then
      validate.refuse("track", "'limit' is above 1000")
    end
    if _redis_call("EXISTS", queue .. "job:" .. job_id) == 0 then
      _redis_call("ZREM", tracked_key, job_id)
      return "not_found"
    elseif is_tracked then
      return tracking.add(queue, job_id, now_ms, limit)
    end
    return tracking.drop(queue, job_id)
  end)
end

do -- updateData
  redis.register_function("oq1_updateData", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local data = ARGV[1]
    count_words("updateData", #KEYS, 1, #ARGV, 1)
    local job_key = KEYS[1]
    if _redis_call("EXISTS", job_key) == 0 then
      return 0
    end
    _redis_call("HSET", job_key, "data", data)
    return 1
  end)
end

do -- version
  redis.register_function("oq1_version", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    count_words("version", #KEYS, 0, #ARGV, 0)
    return REVISION
  end)
end

do -- wake
  local wake = require("wake")
  redis.register_function("oq1_wake", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    count_words("wake", #KEYS, 1, #ARGV, 0)
    local queue = queue_of("wake", KEYS[1], ":stream") .. ":"
    wake.all(queue)
    return 1
  end)
end

do -- wakeDue
  local promotion = require("promotion")
  local wake = require("wake")
  redis.register_function("oq1_wakeDue", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "wakeDue", "now_ms")
    count_words("wakeDue", #KEYS, 7, #ARGV, 1)
    local queue = queue_of("wakeDue", KEYS[1], ":stream") .. ":"
    local scheduled_key = KEYS[2]
    local ratelimited_key = KEYS[3]
    local watch_key = KEYS[6]
    local due = promotion.next_due(scheduled_key, ratelimited_key, queue, now_ms)
    if due >= 0 and wake.for_due(queue, watch_key, due, now_ms) then
      return 1
    elseif wake.has_listed(queue) then
      wake.one(queue, "ready")
      return 1
    end
    return 0
  end)
end

do -- wakeOne
  local wake = require("wake")
  redis.register_function("oq1_wakeOne", function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    count_words("wakeOne", #KEYS, 1, #ARGV, 0)
    local queue = queue_of("wakeOne", KEYS[1], ":stream") .. ":"
    wake.one(queue, "ready")
    return 1
  end)
end

do -- watch
  local promotion = require("promotion")
  local schedulers = require("schedulers")
  local wake = require("wake")
  redis.register_function{ function_name = "oq1_watch", flags = { "allow-oom" }, callback = function(KEYS, ARGV)
    if not _redis_call then
      look_up()
    end
    local now_ms = ARGV[1] == "0" and 0 or whole(ARGV[1], "watch", "now_ms")
    local consumer = ARGV[2]
    local until_ms = ARGV[3] == "0" and 0 or whole(ARGV[3], "watch", "until_ms")
    local fires = flag(ARGV[4], "watch", "fires")
    count_words("watch", #KEYS, 9, #ARGV, 4)
    local queue = queue_of("watch", KEYS[1], ":stream") .. ":"
    local scheduled_key = KEYS[2]
    local ratelimited_key = KEYS[3]
    local watch_key = KEYS[7]
    local watch_schedulers_key = KEYS[8]
    local at = -1
    local function watch(key, due)
      if due >= 0 and due <= until_ms then
        if wake.watch(queue, key, consumer, due, now_ms) and (at < 0 or due < at) then
          at = due
        end
      elseif wake.ignore(key, consumer) and until_ms == 0 then
        wake.one(queue, "due") -- the other one that watches may be dead
      end
    end

    watch(watch_key, promotion.next_due(scheduled_key, ratelimited_key, queue, now_ms))
    if fires then
      -- What is due already this worker is about to evaluate, unless another holds the lock; it knows when to come again.
      local look = schedulers.next_look(queue)
      watch(watch_schedulers_key, look > now_ms and look or -1)
    end
    return at
  end }
end
