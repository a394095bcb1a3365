--- Ends the attempt of a job that is not done: by the kind of its settlement, and with the letter for the new state of
--- it. The effects are those of glidemq_moveActiveToDelayed, _moveToWaitingChildren, _suspend and _rateLimitGroup; `n` is of this library alone.

local dead_letters = require("dead_letters")
local deferral = require("deferral")
local failed_attempt = require("failed_attempt")
local group_limit = require("group_limit")
local propagation = require("propagation")
local waits = require("waits")

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
  if (tonumber(job.depsFailed) or 0) + (tonumber(job.depsSkipped) or 0) > 0 then
    -- A child failed while the job was still running.
    propagation.decide(self.outcomes, self.queue, done.job_id)
  end
  return "w"
end

function interruption.n(self, done, job)
  waits.begin(self.queue, done.job_id, job, self.now, done.payload, done.wait_ms)
  return "s"
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
