-- Options of the server, and their defaults.
local config = {}

--- Return the defaults that clients see: a new table each time, since a library's tables outlive a call.
function config.defaults()
  return {
    application = "qless",
    heartbeat = 60,
    ["grace-period"] = 10,
    ["stats-history"] = 30,
    ["histogram-history"] = 7,
    ["jobs-history-count"] = 50000,
    ["jobs-history"] = 604800,
  }
end

function config.number(name, default)
  return tonumber(redis.call("HGET", "ql:config", name)) or default
end

--- Return how long a lock on a job of the queue lasts, in seconds.
function config.heartbeat(queue)
  local set = redis.call("HMGET", "ql:config", queue .. "-heartbeat", "heartbeat")
  return tonumber(set[1]) or tonumber(set[2]) or 60
end

return config
