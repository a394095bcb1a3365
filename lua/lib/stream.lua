--- The `stream`: ready jobs in order of arrival, and what the consumer group holds of them.

local stream = {}

local PAGE = 1000

function stream.push(queue, job_id, name, ...)
  redis.call("XADD", queue .. "stream", "*", "jobId", job_id, "name", name or "", ...)
end

--- The value of one field of an entry; nil when absent.
function stream.field(fields, name)
  for index = 1, #fields, 2 do
    if fields[index] == name then
      return fields[index + 1]
    end
  end
  return nil
end

--- Take an entry off the group's hands, and off the stream unless other groups read it, too.
function stream.settle(queue, group, entry_id, broadcast)
  if entry_id == "" or group == "" then
    return
  end
  redis.call("XACK", queue .. "stream", group, entry_id)
  if not broadcast then
    redis.call("XDEL", queue .. "stream", entry_id)
  end
end

--- Call `visit(entry_id, fields)` for each entry, oldest first, until it returns true.
function stream.walk(key, visit)
  local from = "-"
  while true do
    local page = redis.call("XRANGE", key, from, "+", "COUNT", PAGE)
    for _, entry in ipairs(page) do
      if visit(entry[1], entry[2]) then
        return
      end
    end
    if #page < PAGE then
      return
    end
    from = "(" .. page[#page][1]
  end
end

--- Take the job's entry off the stream; false when it has none.
function stream.withdraw(queue, group, job_id)
  local found = false
  stream.walk(queue .. "stream", function(entry_id, fields)
    if stream.field(fields, "jobId") == job_id then
      stream.settle(queue, group, entry_id)
      found = true
    end
    return found
  end)
  return found
end

--- Entries the group holds; 0 when there is no such group.
function stream.pending(key, group)
  local summary = redis.pcall("XPENDING", key, group)
  return summary.err and 0 or tonumber(summary[1]) or 0
end

return stream
