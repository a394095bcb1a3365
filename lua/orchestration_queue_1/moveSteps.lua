--- Write steps of a job that is on its way to this queue, which holds it.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @arg   job_id               text         the job
--- @arg   token                text         names the move
--- @arg   field_count          int #fields  how many follow
--- @each    fields StepField: a field of its steps
--- @arg   name                 text         its name
--- @arg   value                text         its value
--- @end     fields
--- @returns int 1; or 0 when the job is not held by this move, and nothing was written
--- @error   the stream key does not end in `:stream`
--- @cost    O(N) for N fields

local steps = require("steps")

if redis.call("HGET", queue .. "job:" .. job_id, "movedBy") ~= token then
  return 0
end
for _, field in ipairs(fields) do
  redis.call("HSET", steps.key(queue, job_id), field.name, field.value)
end
return 1
