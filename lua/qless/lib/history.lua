-- The history of a job: a list of `[when, what, {more}]`; in old jobs, an array of stages in the job's hash.
local config = require("config")

local history = {}

--- Return an entry as text.
function history.entry(when, what, more)
  return cjson.encode({ math.floor(when), what, more })
end

--- Convert the history of an old client, an object per stage, to entries. Return them, oldest first.
local function convert(jid)
  local old = redis.call("HGET", "ql:j:" .. jid, "history")
  local is_json, stages = pcall(cjson.decode, old or "[]")
  local entries = {}
  for _, stage in ipairs(is_json and type(stages) == "table" and stages or {}) do
    if stage.put then
      entries[#entries + 1] = history.entry(stage.put, "put", { q = stage.q })
    end
    if stage.popped then
      entries[#entries + 1] = history.entry(stage.popped, "popped", { worker = stage.worker })
    end
    if stage.failed then
      entries[#entries + 1] = history.entry(stage.failed, "failed")
    end
    if stage.done then
      entries[#entries + 1] = history.entry(stage.done, "done")
    end
  end
  if old then
    redis.call("HDEL", "ql:j:" .. jid, "history")
  end
  return entries
end

--- Return how many entries a job keeps.
function history.limit()
  return config.number("max-job-history", 100)
end

--- Add an entry, and keep the first one and the newest ones when there are more than `limit`.
function history.append(jid, text, limit)
  local key = "ql:j:" .. jid .. "-history"
  local length = redis.call("RPUSH", key, text)
  if length == 1 then
    local old = convert(jid)
    for index = #old, 1, -1 do
      length = redis.call("LPUSH", key, old[index])
    end
  end
  -- A limit of 2 has never limited anything, and one of 1 drops an entry for each new one, except the first and last.
  if limit > 0 and limit ~= 2 and length > math.max(limit, 2) then
    local first = redis.call("LPOP", key)
    redis.call("LTRIM", key, limit == 1 and 1 or 1 - limit, -1)
    redis.call("LPUSH", key, first)
  end
end

--- Add an entry to the history of one job.
function history.add(jid, when, what, more)
  history.append(jid, history.entry(when, what, more), history.limit())
end

--- Return the entries as objects.
function history.read(jid)
  local key = "ql:j:" .. jid .. "-history"
  local entries = redis.call("LRANGE", key, 0, -1)
  if #entries == 0 then
    entries = convert(jid)
    for _, text in ipairs(entries) do
      redis.call("RPUSH", key, text)
    end
  end
  for index, text in ipairs(entries) do
    local values = cjson.decode(text)
    local shown = values[3] or {}
    shown.when, shown.what = values[1], values[2]
    entries[index] = shown
  end
  return entries
end

return history
