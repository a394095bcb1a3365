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
  redis.call("HDEL", key, "depend:" .. member)
  redis.call("HINCRBY", key, COUNTER[before], -1)
end

--- Enter how `member` ended; false when that was known. A job that ran again after its failure ends again; one that
--- completed, or counts as completed, has done so for good.
function dependencies.enter(key, member, outcome)
  local known = redis.call("HMGET", key, "depend:" .. member, "depdone:" .. member, "depweak:" .. member)
  local before = known[1]
  if outcome == before or known[2] and outcome ~= "success" then
    return false
  elseif before then
    forget(key, member, before)
  end
  outcome = known[3] and "success" or outcome
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

--- The field that marks a member which counts as completed with any outcome.
function dependencies.weak_field(member)
  return "depweak:" .. member
end

--- Call `visit(members)` for what a job waits for, some hundred at a time.
local function each_portion(queue, job_id, visit)
  local members = guarded.call("SMEMBERS", queue .. "deps:" .. job_id)
  for first = 1, #members, MEMBERS_PER_COMMAND do
    visit({ unpack(members, first, math.min(first + MEMBERS_PER_COMMAND - 1, #members)) })
  end
end

--- Take optional dependencies out of the counts, and count those among them that have not ended.
local function single_out_optional(queue, job_id, counts)
  local key, pending = queue .. "job:" .. job_id, 0
  each_portion(queue, job_id, function(members)
    local fields = {}
    for index, member in ipairs(members) do
      fields[2 * index - 1], fields[2 * index] = dependencies.weak_field(member), "depdone:" .. member
    end
    local values = redis.call("HMGET", key, unpack(fields))
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
  local fields = redis.call(
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
    total = redis.call("SCARD", deps) - held[1] - held[2],
    success = (tonumber(fields[2]) or 0) - wired,
    failed = tonumber(fields[3]) or 0,
    skipped = tonumber(fields[4]) or 0,
  }
  if fields[7] and rules.SINGLE_OUT_OPTIONAL[rule] then
    single_out_optional(queue, job_id, counts)
  end
  return counts, rule
end

--- How many dependencies of a job have ended without success.
function dependencies.unfulfilled(queue, job_id)
  local counts = redis.call("HMGET", queue .. "job:" .. job_id, "depsFailed", "depsSkipped")
  return (tonumber(counts[1]) or 0) + (tonumber(counts[2]) or 0)
end

--- Forget the failures of jobs that ran again and completed, which a client that only counts completions did not;
--- whether there were any.
function dependencies.correct(queue, job_id)
  local key, found = queue .. "job:" .. job_id, false
  each_portion(queue, job_id, function(members)
    local fields = {}
    for index, member in ipairs(members) do
      fields[2 * index - 1], fields[2 * index] = "depdone:" .. member, "depend:" .. member
    end
    local values = redis.call("HMGET", key, unpack(fields))
    for index, member in ipairs(members) do
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
    for index, member in ipairs(members) do
      ends[index], done[2 * index - 1], done[2 * index] = "depend:" .. member, "depdone:" .. member, 1
    end
    redis.call("HDEL", key, unpack(ends))
    redis.call("HSET", key, unpack(done))
  end)
  redis.call("HDEL", key, "depsFailed", "depsSkipped")
  redis.call("HSET", key, "depsCompleted", dependencies.awaited(queue, job_id))
end

--- Remove the dependencies of a job that runs now. A job that waits for the end of its children may wait for them again,
--- so it keeps their outcomes.
function dependencies.let_go(queue, job_id, counts, rule)
  redis.call("SREM", queue .. "deps:" .. job_id, queue .. RULE)
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
  local before = redis.call("HGET", key, "depend:" .. member)
  if before then
    forget(key, member, before)
  end
  if redis.call("HDEL", key, "depdone:" .. member) == 1 then
    redis.call("HINCRBY", key, "depsCompleted", -1)
  end
end

--- Hold a job that waits.
function dependencies.hold(queue, job_id)
  redis.call("SADD", queue .. "deps:" .. job_id, queue .. WIRING)
  dependencies.await(queue, job_id, queue .. WIRING)
end

--- Release a job that is held; whether it was.
function dependencies.release(queue, job_id)
  return redis.call("SREM", queue .. "deps:" .. job_id, queue .. WIRING) == 1
end

--- Remove the mark of a rule on a job that has no other dependencies.
function dependencies.drop_bare_rule(queue, job_id)
  if dependencies.awaited(queue, job_id) == 1 then
    redis.call("SREM", queue .. "deps:" .. job_id, queue .. RULE)
  end
end

--- For how many members a job waits, or waited.
function dependencies.awaited(queue, job_id)
  return redis.call("SCARD", queue .. "deps:" .. job_id)
end

--- Whether anything that a job waited for is yet to end. `outcome_of(member)` is `pending` then.
function dependencies.any_pending(queue, job_id, outcome_of)
  local found = false
  each_portion(queue, job_id, function(members)
    for _, member in ipairs(members) do
      found = found or outcome_of(member) == PENDING
    end
  end)
  return found
end

--- Return how each of some members ended, by the ledger's three fields of each and by `outcome_of(member)`. If a job waits
--- for the end of its children, completed ones stay completed, and are not read again.
local function outcomes(known, members, rule, outcome_of)
  local found = {}
  for index, member in ipairs(members) do
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
  for index, member in ipairs(members) do
    local done, ended, outcome = "depdone:" .. member, "depend:" .. member, found[index]
    stale[2 * index - 1], stale[2 * index] = done, ended
    if outcome ~= PENDING then
      local counter, size = COUNTER[outcome] or "depsCompleted", #fields
      fields[size + 1] = outcome == "success" and done or ended
      fields[size + 2] = outcome == "success" and 1 or outcome
      counts[counter] = counts[counter] + 1
    end
  end
  redis.call("HDEL", key, unpack(stale))
  if fields[1] then
    redis.call("HSET", key, unpack(fields))
  end
end

--- Recount how all that a job waits for ended: by `outcome_of(member)`, or as is known where that knows nothing.
function dependencies.recount(queue, job_id, outcome_of)
  local key, counts = queue .. "job:" .. job_id, { depsCompleted = 0, depsFailed = 0, depsSkipped = 0 }
  local rule = redis.call("HGET", key, "triggerRule")
  if NEEDS_MORE[rule] then
    redis.call("SADD", queue .. "deps:" .. job_id, queue .. RULE)
  end
  each_portion(queue, job_id, function(members)
    local fields = {}
    for index, member in ipairs(members) do
      local last = 3 * index
      fields[last - 2], fields[last - 1], fields[last] = "depdone:" .. member, "depend:" .. member, "depweak:" .. member
    end
    local known = redis.call("HMGET", key, unpack(fields))
    reenter(key, members, outcomes(known, members, rule, outcome_of), counts)
  end)
  for name, count in pairs(counts) do
    redis.call("HSET", key, name, count)
  end
end

return dependencies
