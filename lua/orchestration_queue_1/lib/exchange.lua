--- One worker's exchange: what many jobs need the same command for is collected here and sent once.

local entries = require("entries")
local lists = require("lists")
local metrics = require("metrics")
local retention = require("retention")

local exchange = {}

--- An exchange for `who.consumer` of `who.group` at `now`. `outcomes` is the propagation of what it settles; `dead_letter`
--- names the queue of dead letters, which are kept for the caller to add with `cluster`; `skip_events` and
--- `skip_metrics` are those of completions.
function exchange.new(queue, now, who)
  who.queue, who.now = queue, now
  who.started, who.letters = {}, {}
  who.entries, who.listed, who.finished = {}, {}, {}
  who.count, who.duration = 0, 0
  return who
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
  local members, score = {}, string.format("%.0f", self.now)
  for index, job_id in ipairs(self.finished) do
    members[2 * index - 1], members[2 * index] = score, job_id
  end
  if members[1] then
    redis.call("ZADD", self.queue .. "completed", unpack(members))
    retention.apply(self.queue, "completed", self.finished, self.now, self.rule)
    self.finished = {}
  end
end

local function same_rule(one, other)
  return one.remove_mode == other.remove_mode
    and one.remove_count == other.remove_count
    and one.remove_age_s == other.remove_age_s
end

--- Count a completed job and enter it among its like, under the rule of retention that came with it.
function exchange.completed(self, done, processed_on)
  if self.rule and (not same_rule(self.rule, done) or #self.finished == 1000) then
    enter_finished(self)
  end
  self.rule = done
  self.finished[#self.finished + 1] = done.job_id
  if not self.skip_metrics then
    self.count = self.count + 1
    self.duration = self.duration + metrics.duration(self.now, processed_on)
  end
end

--- Send what was collected.
function exchange.flush(self)
  enter_finished(self)
  if self.count > 0 then
    metrics.add(self.queue, "completed", self.now, self.count, self.duration)
    self.count, self.duration = 0, 0
  end
  entries.settle(self.queue, self.group, self.entries)
  lists.leave_all(self.queue, self.listed)
  self.entries, self.listed = {}, {}
end

return exchange
