--- Complete one job: record its result, free its group slot, notify the jobs that wait for it.
--- @queue   job!
--- @key   stream               stream       ready jobs
--- @key   completed            zset         completed jobs by time
--- @key   events               stream       lifecycle events
--- @key   job                  hash         the job; must end in `job:` and its id
--- @key   metrics              hash         completions per minute
--- @key?  parent_deps          set          members the parent waits for
--- @key?  parent_job           hash         the parent
--- @key?  parent_stream        stream       the parent's queue
--- @key?  parent_events        stream       the parent's queue
--- @record  done the arguments that follow are its fields
--- @arg   job_id               text         the job
--- @arg   entry_id             text         its stream entry; empty when it came from a list
--- @arg   returnvalue          text         its result, as the serializer wrote it
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group of the entry
--- @arg   remove_mode          text =0      retention: `true`, `count`, `age_count`, or `0` to keep all
--- @arg   remove_count         int =0       completed jobs to keep
--- @arg   remove_age_s         int =0       seconds to keep them
--- @arg   deps_member          text =       the job's name among what its parent waits for; empty without a parent
--- @arg   parent_id            text =       the parent; empty without one
--- @arg   broadcast            flag =0      leave the entry on the stream and retain everything
--- @end     done
--- @returns int 1, also for a job that is gone
--- @error   the job key does not end in `job:` and the id
--- @cost    O(log N), and O(1) per removed or notified job

local completion = require("completion")
local record = require("record")

local known = record.load(queue, done.job_id) or {}
completion.settle(queue, done, known, parent_job_key)
return 1
