--- The fence: a job belongs to whoever activated it, until it leaves the active state or is activated again.

local lease = {}

lease.RENEWAL = { "state", "processedOn", "revoked" }
lease.COMPLETION = {
  "state", "processedOn", "groupKey", "orderingSeq", "orderingKey", "parentId", "parentQueue",
}
lease.OTHER = {
  "state", "processedOn", "groupKey", "orderingSeq", "orderingKey", "priority", "name", "depsCompleted",
}

--- Some fields of the job, and whether its last activation was the one of `taken_ms`.
function lease.look(queue, job_id, taken_ms, fields)
  -- A key that is no hash is no job: it shall not keep the others of its batch from being settled.
  local values = redis.pcall("HMGET", queue .. "job:" .. job_id, unpack(fields))
  local job = {}
  for index, name in ipairs(fields) do
    job[name] = values[index] or nil
  end
  return job, tonumber(job.processedOn) == taken_ms
end

return lease
