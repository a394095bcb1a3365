--- Activate one job, if neither its age nor its group forbids it.
--- @key   job                  hash         the job
--- @key?  stream               stream       ready jobs
--- @arg   now_ms               int          epoch ms
--- @arg   entry_id             text =       its stream entry; empty when it came from a list
--- @arg   group                text =       consumer group of the entry
--- @arg   job_id               text =       the job; empty to read it off the key
--- @arg   broadcast            flag =0      leave the entry on the stream
--- @returns texts field, value, ... of the active job; or one text: empty (no such job), `REVOKED`, `EXPIRED`, `GROUP_ORDERED`, `GROUP_FULL`, `GROUP_TOKEN_LIMITED`, `GROUP_RATE_LIMITED`, `ERR:COST_EXCEEDS_CAPACITY`
--- @cost    O(1), O(log N) in a group

local activation = require("activation")
local record = require("record")

local queue, named = record.locate(job_key)
local entry = { id = entry_id, group = stream_key and group or "", broadcast = broadcast }
local flat, verdict = activation.try(queue, job_id ~= "" and job_id or named, entry, now_ms)
return flat or verdict
