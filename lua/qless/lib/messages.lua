-- What is published. The order of messages within a call is part of the API.
local messages = {}

--- Tell `ql:log` of an event.
function messages.log(event, fields)
  fields.event = event
  redis.call("PUBLISH", "ql:log", cjson.encode(fields))
end

--- Publish a job's id on `ql:<event>` when the job is tracked. Return whether it is.
function messages.tracked(event, jid)
  local is_tracked = redis.call("ZSCORE", "ql:tracked", jid) ~= false
  if is_tracked then
    redis.call("PUBLISH", "ql:" .. event, jid)
  end
  return is_tracked
end

--- Notify a worker, and then the log, that its lock is lost.
function messages.lock_lost(jid, worker)
  local message = cjson.encode({ jid = jid, event = "lock_lost", worker = worker })
  redis.call("PUBLISH", "ql:w:" .. worker, message)
  redis.call("PUBLISH", "ql:log", message)
end

return messages
