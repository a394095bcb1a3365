--- Starts jobs for a worker: those delivered to it, then as many more as it wants.

local activation = require("activation")
local entries = require("entries")
local exchange = require("exchange")
local lists = require("lists")
local outcomes = require("outcomes")
local promotion = require("promotion")
local shares = require("shares")
local stream = require("stream")
local wake = require("wake")

local dispatch = {}

--- How many candidates are inspected for `want` jobs: some are gone, expired or have to wait for their group.
local LOOKS_PER_JOB, SPARE_LOOKS = 3, 10
local MOST_PROMOTED = 100

--- Start one job; returns 1 if it runs now. The worker no longer has one that doesn't.
local function start(self, job_id, entry_id)
  self.entry.id = entry_id
  local flat, verdict = activation.try(self.queue, job_id, self.entry, self.now, self.skip_events)
  if flat then
    local started = self.started
    local size = #started
    started[size + 1], started[size + 2], started[size + 3] = job_id, entry_id, flat
    return 1
  end
  if verdict == "REVOKED" then
    outcomes.fail_revoked(self, job_id)
  end
  if entry_id ~= "" and (verdict == "REVOKED" or verdict == "") then
    exchange.leave(self, job_id, entry_id)
  end
  return 0
end

--- Start the delivered jobs up to `last`, if their entries are still pending in the group.
local function start_delivered(self, deliveries, last)
  local held = entries.claim(self.queue, self.group, self.consumer, deliveries, last)
  for index = 1, last do
    local delivery = deliveries[index]
    if held[delivery.entry_id] then
      start(self, delivery.job_id, delivery.entry_id)
    end
  end
end

local function from_lists(self, want, looks)
  local found = 0
  while found < want and looks > 0 do
    local job_ids = lists.pop(self.queue, math.min(want - found, looks))
    if not job_ids[1] then
      break
    end
    for _, job_id in ipairs(job_ids) do
      found = found + start(self, job_id, "")
    end
    looks = looks - #job_ids
  end
  lists.count_in(self.queue, found)
  return found, looks
end

--- Start jobs of shares before a backlog of jobs without one, which they would wait behind on the stream.
local function from_shares(self, want)
  local found = 0
  for _, job_id in ipairs(shares.overtake(self.queue, want)) do
    found = found + start(self, job_id, "")
  end
  lists.count_in(self.queue, found)
  return found
end

local function from_stream(self, want, looks)
  local found = 0
  while found < want and looks > 0 do
    local batch = entries.read(self.queue, self.group, self.consumer, math.min(want - found, looks))
    if not batch[1] then
      if not self.has_shares or shares.feed(self.queue, want - found) == 0 then
        return "empty"
      end
    end
    for _, entry in ipairs(batch) do
      local job_id = stream.field(entry[2], "jobId")
      if job_id then
        found = found + start(self, job_id, entry[1])
      else
        exchange.leave(self, "", entry[1])
      end
    end
    looks = looks - #batch
  end
  return "enough"
end

--- How many more jobs the queue lets start now; nil while it is paused. Delivered ones are counted as started.
local function places(self, honor_pause)
  local settings = redis.call("HMGET", self.queue .. "meta", "paused", "globalConcurrency", "shared")
  if honor_pause and settings[1] == "1" then
    return nil
  end
  self.has_shares = settings[3] and true
  local most = tonumber(settings[2]) or 0
  if most <= 0 then
    return math.huge
  end
  return most - stream.pending(self.queue .. "stream", self.group) - lists.counted(self.queue)
end

--- Start what was delivered and up to `want` jobs more, as far as the queue allows; the rest of the delivered jobs
--- is returned. Returns why no more were taken.
function dispatch.serve(self, deliveries, want, honor_pause)
  local free = places(self, honor_pause)
  local kept = free and #deliveries - math.min(#deliveries, math.max(0, -free)) or 0
  outcomes.hand_back(self, deliveries, kept + 1)
  if not free then
    return "paused"
  end
  if kept > 0 then
    start_delivered(self, deliveries, kept)
  end
  local most, promoted = math.min(want, math.max(0, free)), 0
  -- Usually all of these are empty, which one command can check.
  local has_others = most > 0
    and redis.call("EXISTS", self.queue .. "scheduled", self.queue .. "priority", self.queue .. "lifo") > 0
  if has_others then
    -- What is due now must not wait for the next round of promotions.
    promoted = promotion.due(self.queue, self.now, MOST_PROMOTED, true)
    self.has_shares = self.has_shares or promoted > 0 and shares.any_wait(self.queue)
  end
  local listed, looks = 0, want * LOOKS_PER_JOB + SPARE_LOOKS
  if has_others then
    listed, looks = from_lists(self, most, looks)
  end
  if promoted > 0 then
    wake.for_lists(self.queue)
  end
  if self.has_shares then
    listed = listed + from_shares(self, most - listed)
    shares.feed(self.queue, most - listed)
  end
  local stopped = from_stream(self, most - listed, looks)
  if promoted == MOST_PROMOTED and stopped == "empty" then
    stopped = "enough" -- more may be due
  end
  if most < want and stopped == "enough" or kept < #deliveries then
    return "full"
  end
  if want > 0 then
    return stopped
  end
  return self.has_shares and "enough" or ""
end

return dispatch
