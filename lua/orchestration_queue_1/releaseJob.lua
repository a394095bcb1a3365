--- Take an active job from its worker and make it ready again, without counting an attempt.
--- @queue   stream!
--- @flags   allow-oom
--- @key   stream               stream       ready jobs
--- @key   events               stream       lifecycle events
--- @key   priority             list         promoted prioritized jobs
--- @key   lifo                 list         LIFO jobs
--- @key   list_active          string       how many active jobs came from a list
--- @key   ratelimited          zset         groups that wait for their limits
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   group                text         consumer group of its entry
--- @returns text `ok`, `not_found`, `not_active`, or `not_in_stream` when its entry was not among the 1,000 oldest, and then nothing was changed
--- @error   the stream key does not end in `:stream`
--- @cost    O(log N); it reads up to 1,000 entries if the record does not name the job's

local events = require("events")
local history = require("history")
local lists = require("lists")
local placement = require("placement")
local record = require("record")
local stalled = require("stalled")
local stream = require("stream")
local wake = require("wake")

local MOST_HELD, PAGE = 1000, 250

-- For jobs that another library made ready again: their records name no entry, and they are older than theirs.
local function settle_held()
  local looked, found = 0, nil
  stream.pages(stream_key, PAGE, function(page)
    for _, entry in ipairs(page) do
      if stream.field(entry[2], "jobId") == job_id and stream.is_held(stream_key, group, entry[1]) then
        found = entry[1]
        return true
      end
    end
    looked = looked + #page
    return looked >= MOST_HELD
  end)
  if found then
    stream.settle(queue, group, found)
  end
  return found ~= nil
end

local job = record.load(queue, job_id)
if not job then
  return "not_found"
elseif job.state ~= "active" then
  return "not_active"
end
if lists.holds(job) then
  lists.leave(queue, job_id)
elseif not stream.remove(queue, group, job_id, job) and not settle_held() then
  return "not_in_stream"
end
redis.call("HSET", queue .. "job:" .. job_id, "releasedFrom", job.processedOn or "")
history.append(queue, job_id, { event = "released", started = tonumber(job.processedOn), ended = now_ms })
stalled.reset(queue, job_id, job, now_ms)
placement.ready(queue, job_id, job)
events.emit(queue, "released", job_id)
wake.released(queue, job_id)
return "ok"
