--- Many entries of the stream at a time: read, claimed, and acknowledged.

local chunks = require("chunks")

local entries = {}

--- Read up to `count` new entries for a consumer. A stream that was deleted gets its group again.
function entries.read(queue, group, consumer, count)
  local key = queue .. "stream"
  local function read()
    return redis.pcall("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">")
  end
  local reply = read()
  if reply and reply.err and reply.err:find("NOGROUP", 1, true) then
    redis.call("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
    reply = read()
  end
  if not reply then
    return {}
  end
  return reply.err and error(reply) or reply[1][2]
end

--- Return which of these entries are still pending in the group, as a set; this consumer now has them.
function entries.claim(queue, group, consumer, entry_ids)
  local held = {}
  for _, entry_id in ipairs(entry_ids) do
    local claimed = redis.pcall("XCLAIM", queue .. "stream", group, consumer, 0, entry_id, "JUSTID")
    held[entry_id] = not claimed.err and claimed[1] ~= nil
  end
  return held
end

--- Acknowledge one entry and remove it from the stream; false if it was not pending.
function entries.drop(queue, group, entry_id)
  local held = redis.call("XACK", queue .. "stream", group, entry_id) == 1
  redis.call("XDEL", queue .. "stream", entry_id)
  return held
end

--- Acknowledge entries and remove them from the stream.
function entries.settle(queue, group, entry_ids)
  local key = queue .. "stream"
  chunks.call(entry_ids, "XACK", key, group)
  chunks.call(entry_ids, "XDEL", key)
end

return entries
