-- What is published. The order of messages within a call is part of the API.
local messages = {}

--- Tell `ql:log` of an event.
function messages.log(event, fields)
  fields.event = event
  redis.call("PUBLISH", "ql:log", cjson.encode(fields))
end

--- Publish a job's id on `ql:<event>` when the job is tracked.
function messages.tracked(event, jid)
  if redis.call("ZSCORE", "ql:tracked", jid) then
    redis.call("PUBLISH", "ql:" .. event, jid)
  end
end

--- Tell a worker, and then the log, that its lock is lost.
function messages.lock_lost(jid, worker)
  local message = cjson.encode({ jid = jid, event = "lock_lost", worker = worker })
  redis.call("PUBLISH", "ql:w:" .. worker, message)
  redis.call("PUBLISH", "ql:log", message)
end

return messages
