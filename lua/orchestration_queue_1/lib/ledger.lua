--- What a waiting job knows of those it waits for: who ended how, each counted once.
--- Completed ones are counted where every glide-mq client counts them: `depdone:{member}` and `depsCompleted`. The
--- others have fields of ours beside them: `depend:{member}` says how one ended, `depsFailed` and `depsSkipped` how many.

local ledger = {}

local COUNTER = { failed = "depsFailed", upstream_failed = "depsFailed", skipped = "depsSkipped" }
local MEMBERS_PER_COMMAND = 500

--- Members that are no jobs. While `__hold__` is awaited, the job is still being wired. `__rule__` is never told of, so
--- that completions alone do not release the job.
local WIRING, RULE = "__hold__", "__rule__"

--- Whether an outcome has one of the four names.
function ledger.is_outcome(outcome)
  return outcome == "success" or COUNTER[outcome] ~= nil
end

local function forget(key, member, before)
  redis.call("HDEL", key, "depend:" .. member)
  redis.call("HINCRBY", key, COUNTER[before], -1)
end

--- Enter how `member` ended; false when that was known. A job that ran again after its failure ends anew.
function ledger.enter(key, member, outcome)
  local before = redis.call("HGET", key, "depend:" .. member)
  if outcome == before then
    return false
  elseif before then
    forget(key, member, before)
  end
  if outcome ~= "success" then
    redis.call("HSET", key, "depend:" .. member, outcome)
    redis.call("HINCRBY", key, COUNTER[outcome], 1)
  elseif redis.call("HSETNX", key, "depdone:" .. member, 1) == 1 then
    redis.call("HINCRBY", key, "depsCompleted", 1)
  else
    return false
  end
  return true
end

--- The counts that a rule asks for, and the rule; nil while the job is still being wired.
function ledger.counts(queue, job_id)
  local hold, deps = queue .. WIRING, queue .. "deps:" .. job_id
  local fields = redis.call(
    "HMGET", queue .. "job:" .. job_id,
    "triggerRule", "depsCompleted", "depsFailed", "depsSkipped", "depdone:" .. hold
  )
  local held = redis.call("SMISMEMBER", deps, hold, queue .. RULE)
  local wired = fields[5] and 1 or 0
  if held[1] > wired then
    return nil
  end
  return {
    total = redis.call("SCARD", deps) - held[1] - held[2],
    success = (tonumber(fields[2]) or 0) - wired,
    failed = tonumber(fields[3]) or 0,
    skipped = tonumber(fields[4]) or 0,
  }, fields[1]
end

--- Forget the failures of jobs that ran again and completed, which a client that only counts completions did not;
--- whether there were any.
function ledger.correct(queue, job_id)
  local key, members = queue .. "job:" .. job_id, redis.call("SMEMBERS", queue .. "deps:" .. job_id)
  local found = false
  for first = 1, #members, MEMBERS_PER_COMMAND do
    local last = math.min(first + MEMBERS_PER_COMMAND - 1, #members)
    local fields = {}
    for index = first, last do
      fields[#fields + 1] = "depdone:" .. members[index]
      fields[#fields + 1] = "depend:" .. members[index]
    end
    local values = redis.call("HMGET", key, unpack(fields))
    for index = first, last do
      local place = 2 * (index - first) + 1
      if values[place] and values[place + 1] then
        forget(key, members[index], values[place + 1])
        found = true
      end
    end
  end
  return found
end

--- Let go of what held the job up, now that it runs; it may wait for other jobs later.
function ledger.let_go(queue, job_id)
  redis.call("SREM", queue .. "deps:" .. job_id, queue .. RULE)
end

return ledger
