--- One worker's exchange: collects commands that many jobs need, to send each once.

local entries = require("entries")
local lists = require("lists")
local metrics = require("metrics")
local numbers = require("numbers")
local retention = require("retention")

local exchange = {}

--- An exchange for `who.consumer` of `who.group` at `now`. `outcomes` is the propagation of what it settles; `dead_letter`
--- names the queue of dead letters, which are kept for the caller to add with `cluster`; `skip_events` and
--- `skip_metrics` are those of completions.
function exchange.new(queue, now, who)
  -- In one piece: a table that grows field by field is allocated again four times.
  return {
    queue = queue, now = now, group = who.group, consumer = who.consumer,
    outcomes = who.outcomes, cluster = who.cluster, dead_letter = who.dead_letter,
    skip_events = who.skip_events, skip_metrics = who.skip_metrics,
    started = {}, letters = {}, entries = {}, listed = {}, finished = {}, count = 0, duration = 0,
    rule = nil, has_shares = nil,
    entry = { id = "", group = who.group, consumer = who.consumer, unfinished = true },
  }
end

--- Take a job off the worker: acknowledge its entry, or count a list job out.
function exchange.leave(self, job_id, entry_id)
  if entry_id == "" then
    self.listed[#self.listed + 1] = job_id
  else
    self.entries[#self.entries + 1] = entry_id
  end
end

local function enter_finished(self)
  local finished = self.finished
  if not finished[1] then
    return
  end
  local members, score = {}, numbers.text(self.now)
  for index = 1, #finished do
    members[2 * index - 1], members[2 * index] = score, finished[index]
  end
  redis.call("ZADD", self.queue .. "completed", unpack(members))
  retention.apply(self.queue, "completed", finished, self.now, self.rule)
  self.finished = {}
end

local function same_rule(one, other)
  return one.remove_mode == other.remove_mode
    and one.remove_count == other.remove_count
    and one.remove_age_s == other.remove_age_s
end

--- Count a completed job and enter it among its like, under the rule of retention that came with it.
function exchange.completed(self, done)
  local size = #self.finished
  if self.rule and (size == 1000 or not same_rule(self.rule, done)) then
    enter_finished(self)
    size = 0
  end
  self.rule = done
  self.finished[size + 1] = done.job_id
  if not self.skip_metrics then
    self.count = self.count + 1
    self.duration = self.duration + metrics.duration(self.now, done.taken_ms)
  end
end

--- Send the collected commands.
function exchange.flush(self)
  enter_finished(self)
  if self.count > 0 then
    metrics.add(self.queue, "completed", self.now, self.count, self.duration)
    self.count, self.duration = 0, 0
  end
  if self.entries[1] then
    entries.settle(self.queue, self.group, self.entries)
    self.entries = {}
  end
  if self.listed[1] then
    lists.leave_all(self.queue, self.listed)
    self.listed = {}
  end
end

return exchange
