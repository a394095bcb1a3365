-- What the calls of the older form share: a refusal is nil, and a job's data are an object.
local jobs = require("jobs")

local older = {}

--- Return a job that clients see as old clients see it: its history has an object per stage.
local function present(job)
  local stages = {}
  for _, entry in ipairs(job.history) do
    local stage = stages[#stages]
    if entry.what == "put" or not stage then
      stage = { q = entry.q or job.queue }
      stages[#stages + 1] = stage
    end
    stage[entry.what] = entry.when
    stage.worker = entry.worker or stage.worker
  end
  job.history = stages
  job.data = cjson.decode(job.data)
  return job
end

--- Return a job as old clients see it; nil when it does not exist.
function older.show(jid)
  local job = jobs.show(jid)
  return job and present(job)
end

--- Return jobs that clients see as a list of JSON texts.
function older.list(shown)
  local texts = {}
  for index, job in ipairs(shown) do
    texts[index] = cjson.encode(present(job))
  end
  return texts
end

--- Return a job that runs, for `worker` unless that is nil; nil when it does not.
function older.running(jid, worker)
  local job = jobs.read(jid)
  return job and job.state == "running" and (not worker or job.worker == worker) and job or nil
end

return older
