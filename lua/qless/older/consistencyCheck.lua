--- Find records that contradict each other: jobs in no queue, locks and tags without jobs, dangling dependencies.
--- @arg* words text `resolve` to repair them, a cursor to check one page of keys, a key to check one page of what it holds
--- @returns JSON: counts by kind; with a cursor, the next `cursor` (`0` at the end), and of keys how many were `checked`
--- and which are so `large` that they must be checked by pages
--- @cost    O(N) of all keys, or of a page

local consistency = require("consistency")

local resolve = words[1] == "resolve" or words[1] == "1"
local cursor, key, found = words[2], words[3], {}
local now = tonumber(redis.call("TIME")[1])
if key then
  local rest, size = consistency.add(found, now, key, resolve, cursor)
  found.cursor, found.checked = rest or "0", size
  return cjson.encode(found)
end
local large, next_cursor, checked = {}, cursor or "0", 0
repeat
  local page = redis.call("SCAN", next_cursor, "MATCH", "ql:*", "COUNT", 200)
  next_cursor, checked = page[1], checked + #page[2]
  for _, each in ipairs(page[2]) do
    local rest = consistency.add(found, now, each, resolve)
    if cursor and rest then
      large[#large + 1] = each
    end
    while not cursor and rest do
      rest = consistency.add(found, now, each, resolve, rest)
    end
  end
until cursor or next_cursor == "0"
if cursor then
  found.cursor, found.checked, found.large = next_cursor, checked, large
end
return cjson.encode(found)
