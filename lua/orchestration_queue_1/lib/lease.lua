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
  local values = redis.pcall("HMGET", queue .. "job:" .. claim.job_id, unpack(fields))
  -- Of this size from the start: it would grow three times.
  local job = { state = nil, processedOn = nil, stalledCount = nil, groupKey = nil, parentId = nil }
  for index = 1, #fields do
    local value = values[index]
    if value then
      job[fields[index]] = value
    end
  end
  local same = tonumber(job.processedOn) == claim.taken_ms
    and (numbers.whole(job.stalledCount) or 0) == claim.stalled_count
  return job, same
end

return lease
