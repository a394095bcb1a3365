--- Delay the group of an active job, and the job with it.
--- @queue   job
--- @key   job                  hash         the job
--- @key   stream               stream       ready jobs
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   group                text         consumer group of the entry
--- @arg   duration_ms          int          how long
--- @arg   now_ms               int          epoch ms
--- @arg   broadcast            flag =0      leave the entry on the stream
--- @arg   current_job          text =requeue `requeue` it or `fail` it
--- @arg   requeue_position     text =front  `front` or `back` of the group's queue
--- @arg   extend               text =max    `max` keeps a later end already set, `replace` does not
--- @returns text epoch ms at which the group resumes, `error:not_active` or `error:no_group`
--- @cost    O(log N)

local active = require("active")
local group_limit = require("group_limit")
local record = require("record")

local job = record.load(queue, job_id)
if not job or job.state ~= "active" then
  return "error:not_active"
elseif not job.groupKey or job.groupKey == "" then
  return "error:no_group"
end
active.leave(queue, job_id, entry_id, group, broadcast)
local fate = current_job == "fail" and "fail" or requeue_position == "back" and "back" or "front"
group_limit.put_down(queue, job_id, job, now_ms, fate)
return tostring(group_limit.group(queue, job.groupKey, job_id, duration_ms, now_ms, extend))
