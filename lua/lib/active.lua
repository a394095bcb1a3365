--- What an active job does short of finishing: it leaves its worker, and its record says where to.

local lists = require("lists")
local record = require("record")
local release = require("release")
local stream = require("stream")

local active = {}

--- Take a job off its worker: acknowledge its entry, or count a list job out.
function active.leave(queue, job_id, entry_id, group, broadcast, is_gone)
  if entry_id == "" then
    lists.leave(queue, job_id, is_gone)
  else
    stream.settle(queue, group, entry_id, broadcast)
  end
end

--- Load a job that must be active; nil and the reply when it is not.
function active.load(queue, job_id)
  local job = record.load(queue, job_id)
  if not job then
    return nil, "error:not_found"
  elseif job.state ~= "active" then
    return nil, "error:not_active"
  end
  return job
end

--- A job with a sequence number keeps its slot while it is deferred, so that its followers wait; others release it.
function active.pause_slot(queue, job, now)
  if record.sequence(job) <= 0 then
    release.slot(queue, job.groupKey, now)
  end
end

return active
