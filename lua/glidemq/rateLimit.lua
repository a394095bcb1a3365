--- Count one start against the queue's rate limit.
--- @key   rate                 hash         window of the queue's rate limit
--- @key   meta                 hash         settings of the queue
--- @arg   max_starts           int          starts per window; 0 means the queue's own setting
--- @arg   window_ms            int          length of the window
--- @arg   now_ms               int          epoch ms
--- @returns int 0 when allowed and counted, else ms to wait
--- @cost    O(1)

if max_starts <= 0 then
  local setting = redis.call("HMGET", meta_key, "rateLimitMax", "rateLimitDuration")
  max_starts, window_ms = tonumber(setting[1]) or 0, tonumber(setting[2]) or 0
end
if max_starts <= 0 or window_ms <= 0 then
  return 0
end
local window = redis.call("HMGET", rate_key, "windowStart", "count")
local elapsed = now_ms - (tonumber(window[1]) or 0)
if elapsed >= window_ms then
  redis.call("HSET", rate_key, "windowStart", now_ms, "count", 1)
  return 0
end
if (tonumber(window[2]) or 0) >= max_starts then
  return window_ms - elapsed
end
redis.call("HINCRBY", rate_key, "count", 1)
return 0
