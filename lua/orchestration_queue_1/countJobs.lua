--- Add a worker's counts to a queue's statistics of one day.
--- @queue   stream!
--- @key   stream               stream       ready jobs
--- @arg   day                  text         the day in UTC, as `2026-01-31`
--- @arg   count_count          int #counts  how many follow
--- @each    counts DayCount: what to add to one field
--- @arg   field                text         the field, such as `run:n:TASK`
--- @arg   by                   text         a number
--- @end     counts
--- @returns int how many fields were added to: beyond 10,000, new ones are left out
--- @error   the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for another day, or for what is not a number
--- @cost    O(1) per field

local guarded = require("guarded")
local validate = require("validate")

local KEPT_S = 30 * 86400
local MOST_FIELDS = 10000

if not day:find("^%d%d%d%d%-%d%d%-%d%d$") then
  validate.refuse("countJobs", "'" .. day .. "' is not a day")
end
for _, count in ipairs(counts) do
  local by = tonumber(count.by)
  if not by or by ~= by or by >= math.huge or by < 0 then
    validate.refuse("countJobs", "'" .. count.by .. "' is not a number to add")
  end
end
local key = queue .. "statistics:" .. day
local size, added = guarded.call("HLEN", key), 0
for _, count in ipairs(counts) do
  if size + #counts <= MOST_FIELDS or redis.call("HEXISTS", key, count.field) == 1 then
    redis.call("HINCRBYFLOAT", key, count.field, count.by)
    added = added + 1
  end
end
redis.call("EXPIRE", key, KEPT_S)
return added
