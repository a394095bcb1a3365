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
  n = interruption.n,
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
        redis.call("HSET", self.queue .. "job:" .. job_id, "state", "waiting")
        stream.push(self.queue, job_id, job.name)
      end
    end
  end
end

--- Whether registered parents wait for any of the jobs. Mostly none does, and one look serves all.
local function any_registered(queue, settlements)
  local keys = {}
  for index, done in ipairs(settlements) do
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
  return table.concat(letters)
end

return outcomes
