--- What happened to a job besides success: failed attempts, takeovers, manual retries and cancels, in its record.

local numbers = require("numbers")

local history = {}

local MOST_ENTRIES = 20
local MOST_BYTES = 32768
local LOG_LINES = 5
local LONGEST_LINE = 500

--- The stored entries; none when another client damaged them.
local function load(key)
  local readable, entries = pcall(cjson.decode, redis.call("HGET", key, "history") or "[]")
  return readable and type(entries) == "table" and entries or {}
end

--- The entries as text of bounded size: the tracebacks of the oldest go first, then the entries themselves.
local function encode(entries)
  local text = cjson.encode(entries)
  for index = 1, #entries do
    if #text <= MOST_BYTES then
      break
    end
    entries[index].traceback = nil
    text = cjson.encode(entries)
  end
  while #text > MOST_BYTES and #entries > 1 do
    table.remove(entries, 1)
    text = cjson.encode(entries)
  end
  return text
end

local function last_lines(queue, job_id)
  local lines = redis.pcall("LRANGE", queue .. "log:" .. job_id, -LOG_LINES, -1)
  if lines.err or not lines[1] then
    return nil
  end
  for index, line in ipairs(lines) do
    lines[index] = line:sub(1, LONGEST_LINE)
  end
  return lines
end

--- Append `entry` to the history of a job that is there. That of an attempt,
--- which has a kind, is given its number, its start and the last log lines.
function history.append(queue, job_id, entry)
  local key = queue .. "job:" .. job_id
  if redis.call("TYPE", key).ok ~= "hash" then
    return
  end
  if entry.kind then
    local stored = redis.call("HMGET", key, "attemptsMade", "processedOn")
    entry.attempt = (numbers.whole(stored[1]) or 0) + 1
    entry.started = entry.started or numbers.whole(stored[2])
    entry.logs = last_lines(queue, job_id)
  end
  local entries = load(key)
  entries[#entries + 1] = entry
  while #entries > MOST_ENTRIES do
    table.remove(entries, 1)
  end
  -- What another client stored may be decodable and still not encodable, such as NaN: it must not fail the caller.
  local encodable, text = pcall(encode, entries)
  redis.call("HSET", key, "history", encodable and text or encode({ entry }))
end

return history
