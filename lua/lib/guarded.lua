--- Commands on keys that must stop no call when another client gave them another type.

local guarded = {}

local KEPT_S = 7 * 86400

--- Keep the damaged key under another name for some days, for inspection.
local function set_aside(key)
  local kept = key:gsub("}:", "}:damaged:", 1)
  redis.log(redis.LOG_WARNING, key .. " is of another type than expected; it is " .. kept .. " now")
  redis.call("UNLINK", kept)
  redis.call("RENAME", key, kept)
  redis.call("EXPIRE", kept, KEPT_S)
end

--- As `redis.call`, on a key of this queue. A key of another type is set aside first.
function guarded.call(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= "table" or not reply.err then
    return reply
  elseif not reply.err:find("WRONGTYPE", 1, true) then
    error(reply)
  end
  set_aside(key)
  return redis.call(command, key, ...)
end

return guarded
