--- Complete one job and activate the next: by priority, else LIFO, else the oldest of the stream.
--- @queue   job
--- @key   stream               stream       ready jobs
--- @key   completed            zset         completed jobs by time
--- @key   events               stream       lifecycle events
--- @key   job                  hash         the job that completed
--- @key   metrics              hash         completions per minute
--- @key?  parent_deps          set          members the parent waits for
--- @key?  parent_job           hash         the parent
--- @key?  parent_stream        stream       the parent's queue
--- @key?  parent_events        stream       the parent's queue
--- @record  done the arguments that follow are its fields
--- @arg   job_id               text         the job that completed
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   returnvalue          text         its result, as the serializer wrote it
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group
--- @arg   consumer             text         who takes the next job
--- @arg   remove_mode          text =0      retention: `true`, `count`, `age_count`, or `0` to keep all
--- @arg   remove_count         int =0       completed jobs to keep
--- @arg   remove_age_s         int =0       seconds to keep them
--- @arg   deps_member          text =       the job's name among what its parent waits for; empty without a parent
--- @arg   parent_id            text =       the parent; empty without one
--- @arg   ordering_key_hint    text =       the job's legacy ordering key; `__` when known absent, empty when unknown
--- @arg   ordering_seq_hint    text =       its legacy sequence number; empty when unknown
--- @arg   group_key_hint       text =       the job's group; `__` when known absent, empty when unknown
--- @arg   broadcast            flag =0      leave the entry on the stream, retain everything and fetch nothing
--- @arg   processed_on_hint    text =       when the attempt began, epoch ms; empty when unknown
--- @arg   has_parents          text =       ignored: a parent may have been registered while the job ran
--- @arg   skip_events          flag =0      emit no `completed`, `active` or `failed` event
--- @arg   skip_metrics         flag =0      count nothing
--- @end     done
--- @returns texts `NEXT_NONE`, job id; or `NEXT_REVOKED`, job id, next id, its entry id; or `NEXT_HASH`, job id, next id, its entry id (empty from a list), field, value, ...
--- @cost    O(log N), and O(1) per removed, notified or skipped job

local completion = require("completion")
local fetch = require("fetch")

completion.settle(queue, done, completion.known(queue, done), parent_job_key)
if done.broadcast then
  return { "NEXT_NONE", done.job_id }
end
return fetch.next(queue, done)
