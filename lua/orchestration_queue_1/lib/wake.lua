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
  redis.call("PEXPIRE", queue .. "wake", TTL_MS)
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
  return redis.call("XADD", key, "NOMKSTREAM", "MAXLEN", 1, "*", what, 1)
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
  return redis.call("EXISTS", queue .. "lifo", queue .. "priority") > 0
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
  local from, to = string.format("%.0f", now), string.format("%.0f", math.max(due, now))
  local is_needed = guarded.call("ZCOUNT", key, from, to) == 0
  if is_needed then
    -- A watcher that should have ticked a moment ago may be dead; of two, one is about to tick.
    is_needed = redis.call("ZCOUNT", key, string.format("%.0f", now - LATE_MS), "(" .. from) < WATCHERS
  end
  if is_needed then
    wake.one(queue, "due")
  end
  return is_needed
end

--- Whether the group that hears signals to one worker has no more than one.
local function is_alone(queue)
  local group = redis.pcall("XINFO", "GROUPS", queue .. "wake:one")[1] -- name, its value, consumers, their number, ...
  return group and group[4] <= 1
end

--- Have a worker watch for what is due then, unless enough others do; returns whether it must. The first wakes a second.
function wake.watch(queue, key, consumer, due, now)
  local at = math.max(due, now)
  local at_text = string.format("%.0f", at)
  guarded.call("ZREMRANGEBYSCORE", key, "-inf", string.format("(%.0f", now - LATE_MS))
  local before = tonumber(redis.call("ZSCORE", key, consumer) or nil)
  redis.call("ZREM", key, consumer)
  local others = redis.call("ZCOUNT", key, "-inf", at_text)
  if others >= WATCHERS then
    return false
  end
  redis.call("ZADD", key, at_text, consumer)
  redis.call("PEXPIRE", key, string.format("%.0f", at - now + TTL_MS))
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
