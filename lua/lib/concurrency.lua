--- The queue's own limit on active jobs, over all workers.

local lists = require("lists")
local stream = require("stream")

local concurrency = {}

--- How many more jobs may be active; nil when there is no limit.
function concurrency.room(meta_key, stream_key, queue, group)
  local limit = tonumber(redis.call("HGET", meta_key, "globalConcurrency")) or 0
  if limit <= 0 then
    return nil
  end
  return math.max(limit - stream.pending(stream_key, group) - math.max(lists.counted(queue), 0), 0)
end

return concurrency
