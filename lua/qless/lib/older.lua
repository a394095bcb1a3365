-- What the calls of the older form share: lower priorities come first, empty lists are arrays, and a refusal is nil.
local calls = require("calls")
local jobs = require("jobs")

local older = {}

-- What the history of a stage says besides its queue and worker.
local TIMES = { put = true, popped = true, done = true, failed = true }

--- Turn a priority of this form, in which lower comes first, into one of the commands, or back. Never `-0`.
function older.flip(priority)
  return 0 - priority
end

--- Return the core's name of an option: this form puts the queue last.
function older.option(name)
  local queue = name:match("^heartbeat%-(.+)$")
  return queue and queue .. "-heartbeat" or name
end

--- Refuse more words than a call has.
function older.most(command, words, most)
  if #words > most then
    calls.refuse(command, 'Unknown argument "' .. words[most + 1] .. '"')
  end
end

--- Return an array of text that came as JSON, each once and none empty.
function older.distinct(command, name, word)
  local list, has = {}, {}
  for _, item in ipairs(calls.list(command, name, word)) do
    if not has[calls.name(command, name, tostring(item))] then
      list[#list + 1], has[tostring(item)] = item, true
    end
  end
  return list
end

--- Return how often a job may be retried. The server counts down only whole numbers.
function older.retries(command, name, word)
  local retries = calls.number(command, name, word)
  if retries % 1 ~= 0 then
    calls.refuse(command, 'Arg "' .. name .. '" must be a whole number, got ' .. word)
  end
  return retries
end

--- Return options given as alternating names and values, which must all be known. `delay` is one that is no option.
function older.options(command, words, readers, delay)
  for index = 1, #words, 2 do
    if not readers[words[index]] then
      calls.refuse(command, 'Unknown option "' .. words[index] .. '"')
    end
  end
  local options = calls.options(command, words, readers)
  if (delay or options.delay or 0) > 0 and #(options.depends or {}) > 0 then
    calls.refuse(command, '"delay" and "depends" are not allowed to be used together')
  end
  return options
end

--- Return an array of JSON texts as JSON.
function older.join(texts)
  return "[" .. table.concat(texts, ",") .. "]"
end

--- Return an array as JSON, also when it is empty, which is an object to the server.
function older.array(list)
  local texts = {}
  for index, value in ipairs(list) do
    texts[index] = cjson.encode(value)
  end
  return older.join(texts)
end

--- Return an object as JSON: `fields`, and those that are JSON `texts` already.
function older.object(fields, texts)
  local parts = {}
  for name, value in pairs(fields) do
    parts[#parts + 1] = cjson.encode(name) .. ":" .. cjson.encode(value)
  end
  for name, text in pairs(texts) do
    parts[#parts + 1] = cjson.encode(name) .. ":" .. text
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- Return the stages of a job: an object for each queue that it was put in.
local function stages(job)
  local list = {}
  for _, entry in ipairs(job.history) do
    local stage = list[#list]
    if entry.what == "put" or not stage then
      stage = { q = entry.q or job.queue }
      list[#list + 1] = stage
    end
    if TIMES[entry.what] then
      stage[entry.what] = entry.when
    end
    if entry.what == "popped" then
      stage.worker = entry.worker
    end
  end
  return list
end

--- Return a job that clients see as JSON, with its data as they came, and with `more` fields.
function older.text(job, more)
  local texts = { data = job.data, history = older.array(stages(job)) }
  for _, name in ipairs({ "tags", "dependents", "dependencies" }) do
    texts[name] = older.array(job[name])
  end
  for name in pairs(texts) do
    job[name] = nil
  end
  for name, value in pairs(more or {}) do
    job[name] = value
  end
  job.priority = older.flip(job.priority or 0)
  job.queue = job.queue ~= "" and job.queue or cjson.null
  return older.object(job, texts)
end

--- Return jobs that clients see as a list of JSON texts.
function older.texts(shown)
  local texts = {}
  for index, job in ipairs(shown) do
    texts[index] = older.text(job)
  end
  return texts
end

--- Return a job that runs for `worker`; nil when it does not.
function older.running(jid, worker)
  local job = jobs.read(jid)
  return job and job.state == "running" and job.worker == worker and job or nil
end

--- Have a job that waits for others be ready after them, whatever delay it was put with before.
function older.forget_delay(jid)
  redis.call("HDEL", "ql:j:" .. jid, "scheduled")
end

--- Note when a worker was last active.
function older.see(now, worker)
  redis.call("ZADD", "ql:workers", now, worker)
end

return older
