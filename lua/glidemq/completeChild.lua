--- Notify a waiting job that one of the jobs it waits for has completed.
--- @key   parent_deps          set          members the parent waits for
--- @key   parent_job           hash         the parent
--- @key   parent_stream        stream       the parent's queue
--- @key   parent_events        stream       the parent's queue
--- @arg   deps_member          text         which of them
--- @arg   parent_id            text         the parent
--- @returns int members still awaited; a second notification changes nothing
--- @cost    O(1)

local flows = require("flows")

flows.notify(flows.queue_of(parent_job_key, parent_id), parent_id, deps_member)
local done = tonumber(redis.call("HGET", parent_job_key, "depsCompleted")) or 0
return redis.call("SCARD", parent_deps_key) - done
