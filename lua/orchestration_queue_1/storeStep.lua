--- Store how a step of a running job ended, once; only for the holder of the job's lease.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @record  claim the arguments that follow are its fields
--- @arg   job_id               text         the running job
--- @arg   taken_ms             int          its `processedOn`, as its activation wrote it
--- @arg   stalled_count        int          its `stalledCount` at that time; 0 without one
--- @end     claim
--- @record  step the arguments that follow are its fields
--- @arg   name                 text         its name
--- @arg   kind                 text         `r` returned, `e` raised, `g` got its signal, `t` waited in vain, `s` sleeps, `w` waits for a signal, `k` its called job completed, `x` that failed
--- @arg   attempt              int          the attempt that stores it
--- @arg   ended_ms             int          epoch ms at which it ended, or began to sleep or wait
--- @arg   duration_ms          int          how long it ran
--- @arg   until_ms             int          epoch ms until which it sleeps or waits; 0 for no end
--- @arg   result               text         what it returned or raised, as the serializer wrote it
--- @end     step
--- @arg   event_kind           text =       its kind in words, for the event `step`; empty for no event
--- @returns array 1: the outcome that counts, as `kind number attempt ended_ms duration_ms until_ms size`; 2: its result, if it was stored before; or the text `lost` when the job is gone, ended or leased to another worker, or `full` when it has 10,000 steps, and then nothing was written
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for another kind
--- @cost    O(1)

local events = require("events")
local lease = require("lease")
local numbers = require("numbers")
local steps = require("steps")
local validate = require("validate")

local KINDS = { r = true, e = true, g = true, t = true, s = true, w = true, k = true, x = true }

if not KINDS[step.kind] then
  validate.refuse("storeStep", "'" .. step.kind .. "' is no kind of outcome")
end
local job, same = lease.look(queue, claim, { "state", "processedOn", "stalledCount", "steps" })
if not same or job.state ~= "active" then
  return "lost"
end
local reply = steps.store(queue, claim.job_id, not job.steps, step)
if event_kind ~= "" and type(reply) == "table" and not reply[2] then
  events.emit(queue, "step", claim.job_id, "step", step.name, "kind", event_kind, "attempt", numbers.text(step.attempt),
    "duration", numbers.text(step.duration_ms))
end
return reply
