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
    self.slots[name] = numbers.whole(redis.call("HGET", self.base .. "slots", name) or nil) or false
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
    if ends and tonumber(ends) > self.now then
      found.by_token[flat[index]] = { weight = tonumber(weight), taken = tonumber(taken) }
      found.used = found.used + tonumber(weight)
    else
      lapsed[#lapsed + 1] = flat[index]
    end
  end
  for _, token in ipairs(lapsed) do
    redis.call("HDEL", holders_key(self, name), token)
  end
  self.read[name] = found
  return found
end

local function hold(self, name, token, weight, taken, lease_ms)
  local text = string.format("%.0f %.0f %.0f", self.now + lease_ms, weight, taken)
  guarded.call("HSET", holders_key(self, name), token, text)
  self.read[name] = nil
end

local function let_go(self, name, token)
  guarded.call("HDEL", holders_key(self, name), token)
  self.read[name] = nil
end

local function decode(text)
  local readable, waiter = pcall(cjson.decode, text or "")
  local sound = readable and type(waiter) == "table" and type(waiter.pools) == "table"
  if not sound or not tonumber(waiter.arrival) then
    return nil
  end
  waiter.patience, waiter.again = tonumber(waiter.patience) or 0, tonumber(waiter.again) or 0
  return waiter
end

local function load_waiter(self, token)
  return decode(guarded.call("HGET", self.base .. "waiting", token) or nil)
end

local function store_waiter(self, token, waiter)
  guarded.call("HSET", self.base .. "waiting", token, cjson.encode(waiter))
end

--- Take a job off all lists; returns what it waited for.
local function forget_waiter(self, token)
  local waiter = load_waiter(self, token)
  for name in pairs(waiter and waiter.pools or {}) do
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
    local texts = tokens[1] and guarded.call("HMGET", self.base .. "waiting", unpack(tokens)) or {}
    local is_over = #tokens < PAGE
    for index, token in ipairs(tokens) do
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
  for _, token in ipairs(stale) do
    guarded.call("ZREM", waiters_key(self, name), token)
  end
end

--- Whether others must let a waiter go first: it is expected back, and it could ever run.
local function is_first_in_line(self, waiter)
  if waiter.patience <= self.now then
    return false
  end
  for name, weight in pairs(waiter.pools) do
    if weight > (pools.slots(self, name) or 0) then
      return false
    end
  end
  return true
end

--- Whether a job that arrived then finds free slots that no earlier job waits for.
local function fits(self, token, weights, arrival)
  for name, weight in pairs(weights) do
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
  for _, name in ipairs(names) do
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
  for name in pairs(weights) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

--- A damaged counter continues from the time, which is after all earlier arrivals.
local function next_arrival(self)
  local arrival = redis.pcall("INCR", self.base .. "arrivals")
  if type(arrival) ~= "number" then
    arrival = self.now
    redis.call("SET", self.base .. "arrivals", string.format("%.0f", arrival))
  end
  return arrival
end

--- Note that a job waits, at the place of its first arrival; returns how long to sleep.
local function wait(self, token, weights)
  local before = load_waiter(self, token)
  local arrival = before and before.arrival or next_arrival(self)
  forget_waiter(self, token)
  local rank = 0
  for name in pairs(weights) do
    guarded.call("ZADD", waiters_key(self, name), arrival, token)
    rank = math.max(rank, redis.call("ZRANK", waiters_key(self, name), token))
  end
  local sleep_ms = math.min(SLEEP_MS + rank * SLEEP_PER_RANK_MS, LONGEST_SLEEP_MS)
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
  for name in pairs(weights) do
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
    for _, name in ipairs(names) do
      let_go(self, name, token)
    end
    return "wait", wait(self, token, weights)
  end
  for name, weight in pairs(weights) do
    hold(self, name, token, weight, taken, lease_ms)
  end
  if waiter then
    forget_waiter(self, token)
  end
  return "held", 0
end

--- Give back the slots of one attempt; those of a later one stay.
function pools.release(self, token, taken, names)
  for _, name in ipairs(names) do
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
