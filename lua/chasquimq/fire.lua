--- Add the jobs of a repeatable job's due runs, and set its next one. Nothing happens if another scheduler was faster.
--- @key   stream               stream       ready and running jobs
--- @key   repeats              zset         repeatable jobs by their next fire
--- @key   spec                 hash         the job's spec, and how often it fired
--- @arg   name                 text         its name among the repeatable jobs
--- @arg   score                text         the fire that the caller evaluated, as `due` returned it
--- @arg   next_ms              int          its next fire, epoch ms; 0 for none
--- @arg   fire_limit           int          after how many fires it ends; 0 for no limit
--- @arg   max_length           int          about how many jobs the stream may hold
--- @arg   job_name             text         the name of its jobs; may be empty
--- @arg   envelope_count       int #envelopes how many follow
--- @arg*  envelopes            bytes        a job per fire
--- @returns int how many jobs were added; -1 when another scheduler was faster
--- @cost    O(log N) and O(1) per fire

local jobs = require("jobs")

if redis.call("ZSCORE", repeats_key, name) ~= score then
  return -1
end
local fired = tonumber(redis.call("HGET", spec_key, "fired") or "0")
local added = 0
for _, envelope in ipairs(envelopes) do
  if fire_limit > 0 and fired >= fire_limit then
    break
  end
  jobs.publish(stream_key, max_length, job_name, envelope)
  fired = redis.call("HINCRBY", spec_key, "fired", 1)
  added = added + 1
end
if next_ms == 0 or (fire_limit > 0 and fired >= fire_limit) then
  redis.call("ZREM", repeats_key, name)
  redis.call("DEL", spec_key)
else
  redis.call("ZADD", repeats_key, next_ms, name)
end
return added
