--- Set a job's priority.
--- @arg     jid      text   its id
--- @arg     priority number higher comes first
--- @returns the priority; nil when the job does not exist
--- @cost    O(log N)

if redis.call("EXISTS", "ql:j:" .. jid) == 1 then
  return run("priority", 0, { jid, priority })
end
