--- Tells the jobs that wait what became of those they wait for, and what that means for them by their trigger rules.

local dependents = require("dependents")
local failure = require("failure")
local flows = require("flows")
local ledger = require("ledger")
local record = require("record")
local release = require("release")
local rules = require("rules")

local propagation = {}

local REASON = { [rules.UPSTREAM_FAILED] = "upstream failed", [rules.SKIPPED] = "skipped" }

--- How a job ended, and who its record says waits for it; nil when it has not ended or is gone.
local function ended(queue, job_id)
  local fields = redis.call(
    "HMGET", queue .. "job:" .. job_id,
    "state", "outcome", "failedReason", "parentId", "parentQueue"
  )
  local job = { parentId = fields[4], parentQueue = fields[5] }
  if fields[1] == "completed" then
    return "success", job
  elseif fields[1] == "failed" then
    -- A job that was run after all fails for a reason of its own.
    return fields[2] and REASON[fields[2]] == fields[3] and fields[2] or "failed", job
  end
  return nil
end

local function decide(queue, job_id)
  local counts, rule = ledger.counts(queue, job_id)
  if not counts then
    return nil
  end
  local verdict = rules.decide(rule, counts)
  local mixed = counts.success > 0 and counts.failed + counts.skipped > 0
  if verdict and mixed and ledger.correct(queue, job_id) then
    return rules.decide(rule, (ledger.counts(queue, job_id)))
  end
  return verdict
end

--- End a job that shall not run, and everything it holds up.
local function end_unrun(queue, job_id, verdict, now)
  local job = record.load(queue, job_id)
  local reason = REASON[verdict]
  failure.record(queue, job_id, reason, now, "outcome", verdict)
  release.forfeit(queue, job, now)
  failure.announce(queue, job_id, reason, now)
end

local function carry_out(self, job_id, verdict)
  local queue = self.queue
  if verdict == rules.RUN then
    ledger.let_go(queue, job_id)
    flows.resume(queue, job_id, redis.call("HGET", queue .. "job:" .. job_id, "name"))
  else
    end_unrun(queue, job_id, verdict, self.now)
    self.todo[#self.todo + 1] = job_id
  end
  local decisions = self.decisions
  decisions[#decisions + 1], decisions[#decisions + 2] = job_id, verdict
end

--- Tell one job of this queue that `member` ended; whether that changed anything.
local function tell(self, job_id, member, outcome)
  local key = self.queue .. "job:" .. job_id
  local job = { state = redis.call("HGET", key, "state") }
  if not job.state or record.has_ended(job) then
    return false
  end
  local changed = ledger.enter(key, member, outcome)
  local verdict = job.state == "waiting-children" and decide(self.queue, job_id)
  if verdict then
    carry_out(self, job_id, verdict)
  end
  return changed or verdict and true or false
end

--- Leave a job of another queue to the caller.
local function leave(self, queue, job_id, member, outcome)
  local elsewhere = self.elsewhere
  local size = #elsewhere
  elsewhere[size + 1], elsewhere[size + 2] = dependents.queue_name(queue), job_id
  elsewhere[size + 3], elsewhere[size + 4] = member, outcome
end

--- Tell all that wait for a job; false when there is no room for more changes before all are told.
local function tell_dependents(self, job_id)
  local outcome, job = ended(self.queue, job_id)
  if not outcome then
    return true
  end
  local member, here, elsewhere = self.queue .. job_id, {}, {}
  dependents.each(self.queue, job_id, job, true, function(queue, dependent_id)
    if queue == self.queue then
      here[#here + 1] = dependent_id
    else
      elsewhere[#elsewhere + 1] = { queue, dependent_id }
    end
  end)
  for _, dependent_id in ipairs(here) do
    if self.room == 0 then
      return false
    elseif tell(self, dependent_id, member, outcome) then
      self.room = self.room - 1
    end
  end
  for _, dependent in ipairs(elsewhere) do
    leave(self, dependent[1], dependent[2], member, outcome)
  end
  return true
end

--- Pass on news from other queues and the outcomes of jobs, then of those that end because of them, the nearest first.
--- Returns what was decided, what other queues are to be told, and which jobs remain once `limit` jobs have changed.
function propagation.run(queue, now, limit, news, job_ids)
  local self = { queue = queue, now = now, room = limit, todo = {}, decisions = {}, elsewhere = {} }
  for index, job_id in ipairs(job_ids) do
    self.todo[index] = job_id
  end
  for _, told in ipairs(news) do
    tell(self, told.dependent, told.member, told.outcome)
  end
  local place = 1
  while self.todo[place] and tell_dependents(self, self.todo[place]) do
    place = place + 1
  end
  local remaining = {}
  for index = place, #self.todo do
    remaining[#remaining + 1] = self.todo[index]
  end
  return { self.decisions, self.elsewhere, remaining }
end

return propagation
