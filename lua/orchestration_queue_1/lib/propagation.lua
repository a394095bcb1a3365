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
  for _, other in ipairs(elsewhere) do
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
  return outcome_in(unpack(redis.call("HMGET", queue .. "job:" .. job_id, "state", "outcome", "failedReason")))
end

--- A job that ended, as its record says; nil when it has not ended or is gone.
local function recorded(queue, job_id)
  local fields = redis.call(
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
    local fields = redis.call("HMGET", queue .. "job:" .. job_id, "parentId", "parentQueue")
    job, registered = { parentId = fields[1], parentQueue = fields[2] }, true
  end
  local ended = ending(queue, job_id, outcome, job, registered)
  if ended.waiting[1] then
    self.todo[#self.todo + 1] = ended
  end
end

--- Whether keys of other queues may be on other servers. Who may not ask must be taken to be in a cluster.
local function in_cluster()
  local reply = redis.pcall("CLUSTER", "MYID")
  return not (type(reply) == "table" and reply.err and reply.err:find("cluster support disabled", 1, true))
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
    flows.resume(queue, job_id, unpack(redis.call("HMGET", queue .. "job:" .. job_id, "name", "share")))
  else
    end_unrun(self, queue, job_id, verdict)
  end
  note_decision(self, job_id, verdict)
  return true
end

--- Start a job without dependencies left, as its options say.
function propagation.start(self, job_id)
  local queue, key = self.queue, self.queue .. "job:" .. job_id
  local fields = redis.call("HMGET", key, "name", "delay", "priority", "lifo", "timestamp", "share")
  local state, entry_id = placement.new(queue, job_id, {
    job_name = fields[1],
    delay_ms = tonumber(fields[2]) or 0,
    priority = tonumber(fields[3]) or 0,
    lifo = fields[4] == "1",
    timestamp_ms = tonumber(fields[5]) or self.now,
    share = fields[6] or nil,
  })
  redis.call("HSET", key, "state", state, unpack(entry_id and { "entry", entry_id } or {}))
  if fields[6] then
    shares.feed(queue, 0)
  end
  note_decision(self, job_id, rules.RUN)
end

--- Tell one job that `member` ended; whether that changed anything.
local function notify(self, queue, job_id, member, outcome)
  local key = queue .. "job:" .. job_id
  local job = { state = redis.call("HGET", key, "state") }
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
  flows.notify(queue, job_id, member, function(rule, missing)
    if not rules.WAITS_FOR_ALL[rule] or dependencies.unfulfilled(queue, job_id) >= missing then
      propagation.decide(self, queue, job_id)
    end
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
  if ended.queue == self.queue and redis.call("EXISTS", ended.queue .. "job:" .. ended.job_id) == 1 then
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
