--- Dead letters: the report of a job that failed for good, as a job of another queue, for inspection or replay.

local bulk = require("bulk")
local dependents = require("dependents")
local guarded = require("guarded")

local dead_letters = {}

local LONGEST_ID = 256
local MOST_OVERDUE = 20

--- A payload inside other JSON: as it is when it is JSON, since decoding and encoding it again would change numbers and empty
--- lists; else, as when a codec wrote it, as a text.
local function embedded(payload)
  local strict = cjson.new()
  strict.decode_invalid_numbers(false)
  return pcall(strict.decode, payload) and payload or cjson.encode(payload)
end

local function envelope(queue_name, job_id, payload, reason, attempts)
  return '{"originalQueue":' .. cjson.encode(queue_name)
    .. ',"originalJobId":' .. cjson.encode(job_id)
    .. ',"data":' .. embedded(payload)
    .. ',"failedReason":' .. cjson.encode(reason)
    .. ',"attemptsMade":' .. string.format("%.0f", attempts) .. "}"
end

--- The same for each letter about one run of one job.
local function id_of(queue_name, job_id, processed_on)
  local id = table.concat({ "dead", queue_name, job_id, processed_on }, ".")
  return #id <= LONGEST_ID and id or "dead." .. redis.sha1hex(id)
end

local function add(self, name, data)
  local there = dependents.sibling(self.queue, self.dead_letter)
  local letter = {
    job_name = name, data = data, opts = "{}", timestamp_ms = self.now, delay_ms = 0, priority = 0, max_attempts = 0,
    parent_id = "", parent_queue = "", ordering_key = "", cost = 0, ttl_ms = 0, custom_id = "",
  }
  local reply = bulk.add(there, { letter }, false)[1]
  return reply:sub(1, 4) ~= "ERR:"
end

--- Keep a letter until the caller, or the worker that recovers overdue ones, has added it and struck it off.
local function keep(self, letter_id, name, data)
  local letter = cjson.encode({ self.dead_letter, letter_id, name, data })
  guarded.call("ZADD", self.queue .. "outbox", string.format("%.0f", self.now), letter)
  self.letters[#self.letters + 1] = letter
end

--- Hand out letters that were kept before a time, and are still there: the caller that had to add them may have died. Returns
--- whether there may be more.
function dead_letters.overdue(self, before_ms)
  local latest = string.format("%.0f", before_ms)
  local found = guarded.call("ZRANGEBYSCORE", self.queue .. "outbox", "-inf", latest, "LIMIT", 0, MOST_OVERDUE)
  for _, letter in ipairs(found) do
    self.letters[#self.letters + 1] = letter
  end
  return #found == MOST_OVERDUE
end

--- Add a dead letter about a job that is about to fail for good, unless it was revoked: a cancelled job needs no report.
--- `job` has the field processedOn; `counted` says how many of its attempts were counted for this failure. What cannot be
--- added here, as in a cluster, where the other queue may be on another server, is kept.
function dead_letters.send(self, job_id, job, reason, counted)
  if self.dead_letter == "" then
    return
  end
  local fields = redis.call("HMGET", self.queue .. "job:" .. job_id, "name", "data", "revoked", "attemptsMade")
  if fields[3] == "1" then
    return
  end
  local queue_name, name = dependents.queue_name(self.queue), fields[1] or ""
  local attempts = (tonumber(fields[4]) or 0) - counted
  local data = envelope(queue_name, job_id, fields[2] or "", reason, attempts)
  local fine, added = true, false
  if not self.cluster then
    -- A queue over there that is broken must not keep the job from failing here.
    fine, added = pcall(add, self, name, data)
  end
  if not (fine and added) then
    keep(self, id_of(queue_name, job_id, job.processedOn or ""), name, data)
  end
end

return dead_letters
