--- Find records that contradict each other: jobs in no queue, locks and tags without jobs, dangling dependencies.
--- @arg* words text `resolve` to repair them, and a cursor to check one page of keys at a time
--- @returns JSON: counts by kind, and the next `cursor` (`0` at the end) when one was given
--- @cost    O(N) of all keys, or of a page

local consistency = require("consistency")

local resolve = words[1] == "resolve" or words[1] == "1"
local cursor, found = words[2] or "0", {}
local clock = redis.call("TIME")
repeat
  local page = redis.call("SCAN", cursor, "MATCH", "ql:*", "COUNT", 500)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local kind, count = consistency.check(tonumber(clock[1]), key, resolve)
    if count > 0 then
      found[kind] = (found[kind] or 0) + count
    end
  end
until cursor == "0" or words[2]
if words[2] then
  found.cursor = cursor
end
return cjson.encode(found)
