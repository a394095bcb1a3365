--- Jobs taken from the priority and LIFO lists. No consumer group knows which worker has them, so we keep
---   `list-active`        how many are taken, as the wire has it, and
---   `list-active:jobs`   which: scored by when they were activated, negative while they are only taken.
--- Another library keeps the count alone. Where the index names fewer jobs than are counted, the keys are scanned.

local chunks = require("chunks")
local guarded = require("guarded")
local record = require("record")

local lists = {}

local TAKEN = -1
local SCAN_PAGE = 500
local MOST_SCANS = 1000

local function index_key(queue)
  return queue .. "list-active:jobs"
end

local function counter_key(queue)
  return queue .. "list-active"
end

function lists.counted(queue)
  return tonumber(redis.call("GET", counter_key(queue))) or 0
end

--- Note that jobs were popped: should their worker die before it activates them, they can be found.
function lists.taken(queue, job_ids)
  local members = {}
  for _, job_id in ipairs(job_ids) do
    members[#members + 1], members[#members + 2] = TAKEN, job_id
  end
  if members[1] then
    guarded.call("ZADD", index_key(queue), unpack(members))
  end
  return job_ids
end

--- Pop up to `count` jobs, from the LIFO list only when no job has priority.
function lists.pop(queue, count)
  local popped = redis.call("LMPOP", 2, queue .. "priority", queue .. "lifo", "RIGHT", "COUNT", count)
  return popped and popped[2] or {}
end

function lists.activated(queue, job_id, now)
  guarded.call("ZADD", index_key(queue), now, job_id)
end

--- The consumer that started a job, and when, as one text, which differs for each start.
function lists.taker(consumer, processed_on)
  return consumer .. "@" .. processed_on
end

--- Forget that a job was taken, without a change to the count.
function lists.forget(queue, job_id)
  guarded.call("ZREM", index_key(queue), job_id)
end

--- Count jobs popped from a list as taken by a worker.
function lists.count_in(queue, number)
  if number > 0 then
    redis.call("INCRBY", counter_key(queue), number)
  end
end

--- Count jobs out again; the count never falls below zero.
local function count_out(queue, number)
  local left = math.min(lists.counted(queue), number)
  if left > 0 then
    redis.call("DECRBY", counter_key(queue), left)
  end
end

--- Jobs taken from a list are no longer held by a worker.
function lists.leave_all(queue, job_ids)
  if job_ids[1] then
    chunks.guarded_call(job_ids, "ZREM", index_key(queue))
    count_out(queue, #job_ids)
  end
end

--- No worker holds the job. The call that removed a job that is gone has counted it out already, unless
--- the index still has it.
function lists.leave(queue, job_id, is_gone)
  local indexed = guarded.call("ZREM", index_key(queue), job_id) == 1
  if indexed or not is_gone then
    count_out(queue, 1)
  end
end

--- Whether an active job was taken from a list. Only jobs activated by this library say so themselves.
function lists.holds(job)
  if job.takenFrom then
    return job.takenFrom == "list"
  end
  return job.lifo == "1" or record.priority(job) > 0
end

--- Find active list jobs by scanning every key of the queue; false when there are too many keys.
local function scan(queue, visit)
  local prefix = queue .. "job:"
  local pattern = prefix:gsub("[%*%?%[%]%^\\]", "\\%0") .. "*"
  local cursor = "0"
  for _ = 1, MOST_SCANS do
    local page = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_PAGE, "TYPE", "hash")
    for _, key in ipairs(page[2]) do
      local job_id = key:sub(#prefix + 1)
      -- No id has a colon: a key with one belongs to a job, but is not its record.
      if not job_id:find(":", 1, true) then
        visit(job_id)
      end
    end
    cursor = page[1]
    if cursor == "0" then
      return true
    end
  end
  return false
end

--- Read the index and drop what no longer belongs there. Returns the active jobs, each `{ id, job }`, and those
--- only taken, each `{ id, since }`. Jobs that another library activated may be missing.
function lists.indexed(queue)
  local active, taken = {}, {}
  local members = guarded.call("ZRANGE", index_key(queue), 0, -1, "WITHSCORES")
  for index = 1, #members, 2 do
    local job_id, score = members[index], tonumber(members[index + 1])
    local job = record.load(queue, job_id)
    if job and job.state == "active" and lists.holds(job) then
      active[#active + 1] = { id = job_id, job = job }
    elseif job and job.state == "waiting" and score < 0 then
      taken[#taken + 1] = { id = job_id, job = job, since = -score, is_new = score == TAKEN }
    else
      lists.forget(queue, job_id)
    end
  end
  return active, taken
end

--- All jobs taken from a list: those active, those only taken, and whether these are all.
function lists.all(queue)
  local active, taken = lists.indexed(queue)
  if #active + #taken >= lists.counted(queue) then
    return active, taken, true
  end
  local known = {}
  for _, entry in ipairs(active) do
    known[entry.id] = true
  end
  local complete = scan(queue, function(job_id)
    local job = not known[job_id] and record.load(queue, job_id)
    if job and job.state == "active" and lists.holds(job) then
      known[job_id] = true
      active[#active + 1] = { id = job_id, job = job }
      lists.activated(queue, job_id, tonumber(job.lastActive) or 0)
    end
  end)
  return active, taken, complete
end

--- Remember when a job was first seen taken but not active.
function lists.seen_taken(queue, job_id, now)
  guarded.call("ZADD", index_key(queue), -now, job_id)
end

--- Whether no worker has a list job.
function lists.is_idle(queue)
  return lists.counted(queue) <= 0 and redis.call("EXISTS", index_key(queue)) == 0
end

--- Correct the count; returns by how much it was too high.
function lists.heal(queue)
  local counted = lists.counted(queue)
  if counted <= 0 then
    if counted < 0 then
      redis.call("SET", counter_key(queue), 0)
    end
    return 0
  end
  local active, taken, complete = lists.all(queue)
  local drift = counted - #active - #taken
  if not complete then
    return 0
  end
  if drift > 0 then
    redis.call("DECRBY", counter_key(queue), drift)
  end
  return drift
end

return lists
