--- Store what a job used, replacing an earlier report, and count it in this minute instead of the earlier one.
--- @queue   events!
--- @key   events               stream       lifecycle events
--- @arg   job_id               text         the job
--- @arg   minute_ms            int          when this minute began, epoch ms
--- @arg   told                 json         the report as listeners get it
--- @arg   field_count          int #fields  how many follow; none takes an earlier report back
--- @each    fields UsageField: a part of the report
--- @arg   name                 text         `model`, `provider`, `tokens`, `totalTokens`, `costs`, `totalCost`, `costUnit`, `latencyMs` or `cached`
--- @arg   value                text         as the job's hash holds it
--- @end     fields
--- @returns text `ok`; `missing` when there is no such job, or `locked` while another client is half-way through a report, and then nothing was written
--- @error   the events key does not end in `:events`; or when a field has another name
--- @cost    O(C) for C categories

local events = require("events")
local usage = require("usage")

local report = usage.read(fields)
local job_key = queue .. "job:" .. job_id
if redis.call("EXISTS", job_key) == 0 then
  return "missing"
elseif redis.call("EXISTS", job_key .. ":usage-lock") == 1 then
  return "locked"
end
usage.replace(queue, job_key, report, string.format("%.0f", minute_ms))
events.emit(queue, "usage", job_id, "data", told)
return "ok"
