--- Signals to the workers of a queue: that something is due earlier than they expect, or that a running job is cancelled.
--- They read them from a stream of their own, `wake`. Clients of other languages neither write nor read it.

local guarded = require("guarded")

local wake = {}

local KEPT, TTL_MS = 1000, 60000

local function signal(queue, what, value)
  guarded.call("XADD", queue .. "wake", "MAXLEN", "~", KEPT, "*", what, value)
  redis.call("PEXPIRE", queue .. "wake", TTL_MS)
end

--- A job that no stream entry announces is ready, or due sooner than all others: a list or the scheduled set holds it.
function wake.due(queue)
  signal(queue, "due", 1)
end

--- A list holds a job that no stream entry announces: one idle worker is to look. All are told where none has ever waited
--- for such a signal, as workers of older versions do not. The newest signal stands for all before it: the worker that hears it
--- looks until the lists are empty, or passes it on.
function wake.one(queue)
  local key = queue .. "wake:one"
  if not guarded.call("XADD", key, "NOMKSTREAM", "MAXLEN", 1, "*", "ready", 1) then
    wake.due(queue)
  end
end

--- A running job is cancelled.
function wake.cancel(queue, job_id)
  signal(queue, "cancel", job_id)
end

--- A running job was taken from its worker, which should ask for its lease.
function wake.released(queue, job_id)
  signal(queue, "released", job_id)
end

return wake
