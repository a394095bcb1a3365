--- Many entries of the stream at a time: read, claimed, and acknowledged.

local chunks = require("chunks")

local entries = {}

local MOST_CLAIMED = 1000

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

--- Return which entries of the first `count` deliveries are still pending in the group, as a set; this consumer now has them.
function entries.claim(queue, group, consumer, deliveries, count)
  local held = {}
  for first = 1, count, MOST_CLAIMED do
    local last = math.min(first + MOST_CLAIMED - 1, count)
    -- Room for one entry, which is the usual number, so that the table does not grow.
    local words = { "XCLAIM", queue .. "stream", group, consumer, "0", nil, nil }
    for index = first, last do
      words[index - first + 6] = deliveries[index].entry_id
    end
    words[last - first + 7] = "JUSTID"
    local claimed = redis.pcall(unpack(words))
    for index = 1, claimed.err and 0 or #claimed do
      held[claimed[index]] = true
    end
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
