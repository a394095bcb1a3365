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
  local readable, decoded = pcall(cjson.decode, opts)
  local name = readable and type(decoded) == "table" and decoded.share
  local sound = type(name) == "string" and name ~= "" and #name <= MOST_BYTES and not name:find("[:{}]")
  return sound and name or nil
end

--- Forget how far shares without jobs are ahead, once all others have caught up.
local function forget_served(queue)
  local lowest = guarded.call("ZRANGE", waiting_key(queue), 0, 0, "WITHSCORES")
  if lowest[1] then
    guarded.call("ZREMRANGEBYSCORE", served_key(queue), "-inf", lowest[2])
  else
    redis.call("UNLINK", served_key(queue))
    redis.call("HDEL", queue .. "meta", "shared", "sharedTurns")
  end
end

--- A share has a job to wait for. One that had none starts at the lowest time: it was not owed anything meanwhile.
local function join(queue, name)
  if guarded.call("ZSCORE", waiting_key(queue), name) then
    return
  end
  local lowest = redis.call("ZRANGE", waiting_key(queue), 0, 0, "WITHSCORES")
  local own = lowest[1] and guarded.call("ZSCORE", served_key(queue), name)
  redis.call("ZADD", waiting_key(queue), math.max(tonumber(lowest[2]) or 0, tonumber(own or nil) or 0), name)
  if own then
    redis.call("ZREM", served_key(queue), name)
  end
end

--- Have a job wait in its share, behind those of its priority. It is moved on by `shares.feed`, to be called when its
--- record says that it waits.
function shares.enter(queue, job_id, name, priority)
  local band = BAND * (priority > 0 and math.min(priority, LAST_BAND) or LAST_BAND)
  local from, to = string.format("(%.0f", band + BAND), string.format("%.0f", band)
  local key = key_of(queue, name)
  local last = guarded.call("ZRANGE", key, from, to, "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES")
  local score = last[2] and tonumber(last[2]) + 1 or band
  local is_new = redis.call("ZADD", key, "NX", string.format("%.0f", score), job_id) == 1
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
  if redis.call("EXISTS", key) == 0 then
    local time = guarded.call("ZSCORE", waiting_key(queue), name)
    if time then
      redis.call("ZREM", waiting_key(queue), name)
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
      time = tonumber(flat[index + 1]),
      size = guarded.call("ZCARD", key_of(queue, name)),
      turns = 0,
    }
  end
  local weights = names[1] and guarded.call("HMGET", queue .. "shares", unpack(names)) or {}
  for index, share in ipairs(found) do
    share.weight = math.max(1, numbers.whole(weights[index] or nil) or 1)
  end
  return found
end

--- Give out turns; returns the shares in that order.
local function take_turns(found, most)
  local turns = {}
  for turn = 1, most do
    local next_one
    for _, share in ipairs(found) do
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
      redis.call("ZADD", waiting_key(queue), share.time, share.name)
    end
    return
  end
  redis.call("ZREM", waiting_key(queue), share.name)
  guarded.call("ZADD", served_key(queue), share.time, share.name)
end

--- Take up to `most` waiting jobs, at most 100, in the order of their turns; returns their ids.
function shares.take(queue, most)
  most = math.min(most, MOST_MOVED)
  local found = candidates(queue, most)
  if not found[1] then
    return {}
  end
  local turns, job_ids, used = take_turns(found, most), {}, {}
  for _, share in ipairs(found) do
    pop(queue, share)
  end
  for _, share in ipairs(turns) do
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
  local first = redis.call("XRANGE", queue .. "stream", "(" .. after, "+", "COUNT", 1)[1]
  local gone = 0
  while entry_ids[gone + 1] and (not first or stream.precedes(entry_ids[gone + 1], first[1])) do
    gone = gone + 1
  end
  if gone > 0 then
    redis.call("LTRIM", key, gone, -1)
  end
  return #entry_ids - gone
end

--- Move the job to the stream if it waits; returns its entry. Another library may have cancelled or removed it.
local function move(queue, job_id)
  local job = redis.pcall("HMGET", queue .. "job:" .. job_id, "state", "name")
  return job[1] == "waiting" and stream.push(queue, job_id, job[2] or "") or nil
end

--- Whether the stream holds more jobs of others than may precede ours: behind these, a share would wait for all of them.
local function is_behind(queue, ahead)
  local size = redis.call("XLEN", queue .. "stream") - ahead
  return size > SPARE and size - stream.pending(queue .. "stream", GROUP) > SPARE
end

--- Take the part of `most` starts that shares get while the stream holds a backlog of jobs without a share: every second
--- one. Returns the jobs' ids, to be started as those of a list.
function shares.overtake(queue, most)
  if most < 1 or not is_behind(queue, count_ahead(queue)) then
    return {}
  end
  local part = math.floor(most / 2)
  if most % 2 == 1 then
    part = part + redis.call("HINCRBY", queue .. "meta", "sharedTurns", 1) % 2
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
  local room = math.min(wanted, MOST_MOVED) + SPARE - ahead
  if room <= 0 or not anyway and is_behind(queue, ahead) then
    return 0
  end
  local entry_ids = {}
  for _ = 1, MOST_ROUNDS do
    local job_ids = room > #entry_ids and shares.take(queue, room - #entry_ids) or {}
    if not job_ids[1] then
      break
    end
    for _, job_id in ipairs(job_ids) do
      entry_ids[#entry_ids + 1] = move(queue, job_id)
    end
  end
  if entry_ids[1] then
    guarded.call("RPUSH", queue .. "shares:ahead", unpack(entry_ids))
    redis.call("EXPIRE", queue .. "shares:ahead", AHEAD_TTL_S)
  end
  return #entry_ids
end

--- Move jobs on though no worker asks, and count those that wait again where another client removed the count. Clients
--- that know no shares take jobs from the stream alone: `anyway` moves some there behind whatever it holds.
function shares.mend(queue, anyway)
  if not shares.any_wait(queue) then
    redis.call("HDEL", queue .. "meta", "shared")
    return
  end
  shares.feed(queue, 0, anyway)
  local names = guarded.call("ZRANGE", waiting_key(queue), 0, MOST_COUNTED - 1)
  if names[1] and (tonumber(redis.call("HGET", queue .. "meta", "shared") or nil) or 0) <= 0 then
    local size = 0
    for _, name in ipairs(names) do
      size = size + guarded.call("ZCARD", key_of(queue, name))
    end
    redis.call("HSET", queue .. "meta", "shared", size)
  end
end

return shares
