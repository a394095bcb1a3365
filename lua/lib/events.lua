--- Lifecycle events: one stream per queue, trimmed to about the last thousand.

local events = {}

function events.emit(queue, type, job_id, ...)
  redis.call("XADD", queue .. "events", "MAXLEN", "~", "1000", "*", "event", type, "jobId", job_id, ...)
end

return events
