--- Read some fields of many jobs.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @arg   most_bytes           int          bytes of values after which the remaining jobs are left to another call
--- @arg   field_count          int #fields  how many follow
--- @arg   job_count            int #job_ids how many follow
--- @each    fields FieldName: a field of each job's hash
--- @arg   name                 text         as it is there
--- @end     fields
--- @arg*  job_ids              text         jobs
--- @flags   no-writes
--- @returns array per job the values of its fields, one job after the other; nil for what it has not, and for all of one that is gone
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for no field
--- @cost    O(F) per job for F fields, about 8 us for 16

local validate = require("validate")

if field_count == 0 then
  validate.refuse("readJobs", "no field is named")
end
local names, values, bytes = {}, {}, 0
for place, field in ipairs(fields) do
  names[place] = field.name
end
local count = 0
for _, job_id in ipairs(job_ids) do
  local found = redis.call("HMGET", queue .. "job:" .. job_id, unpack(names))
  for place = 1, #names do
    local value = found[place]
    count = count + 1
    values[count] = value
    bytes = bytes + (value and #value or 0)
  end
  if bytes > most_bytes then
    break
  end
end
return values
