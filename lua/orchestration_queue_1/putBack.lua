--- Put back a job whose state is ready or delayed, but which is in no structure, where no worker would find it.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   priority             list         ready jobs with a priority
--- @key   lifo                 list         ready last-in-first-out jobs
--- @key   list_active          string       how many active jobs came from a list
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   limit                int          most entries of the stream, or of a list, that may be looked through
--- @returns text `put_back`; or why not: `not_found`, `elsewhere` (it says so itself), `listed`, `held` (a worker of another kind may have it) or `too_many`
--- @error   the stream key does not end in `:stream`
--- @cost    O(limit)

local lists = require("lists")
local placement = require("placement")
local record = require("record")
local shares = require("shares")
local stream = require("stream")
local withdrawal = require("withdrawal")

-- It becomes due at once: a set holds it only once, however often this is called, and promotion gives it its place.
-- A worker that took it from the stream or, with this library, from a list is recorded there. A worker of another library that
-- has popped it, and not yet started it, is seen in the count of list jobs alone.

local WAITS = { waiting = true, delayed = true, prioritized = true }

local function is_listed(share)
  return redis.call("ZSCORE", scheduled_key, job_id)
    or withdrawal.find(queue, "priority", job_id)
    or withdrawal.find(queue, "lifo", job_id)
    or redis.call("ZSCORE", queue .. "list-active:jobs", job_id)
    or shares.holds(queue, job_id, share)
end

local function is_on_stream()
  local found = false
  stream.walk(stream_key, function(_, fields)
    found = stream.field(fields, "jobId") == job_id
    return found
  end)
  return found
end

local function may_be_held(job)
  if job.lifo ~= "1" and record.priority(job) == 0 then
    return false
  end
  local active, taken, complete = lists.all(queue)
  return not complete or lists.counted(queue) > #active + #taken
end

local job = record.load(queue, job_id)
if not job then
  return "not_found"
elseif not WAITS[job.state] then
  return "elsewhere"
end
for _, size in ipairs({
  redis.call("XLEN", stream_key), redis.call("LLEN", priority_key), redis.call("LLEN", lifo_key),
}) do
  if size > limit then
    return "too_many"
  end
end
if is_listed(job.share) or is_on_stream() then
  return "listed"
elseif may_be_held(job) then
  return "held"
end
placement.later(queue, job_id, job, now_ms)
redis.call("HSET", queue .. "job:" .. job_id, "state", "delayed")
return "put_back"
