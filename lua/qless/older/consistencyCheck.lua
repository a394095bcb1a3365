--- Find records that contradict each other: jobs in no queue, locks and tags without jobs, dangling dependencies.
--- @arg* words text `resolve` to repair them, a cursor to check one page of keys, a key to check one page of what it holds
--- @returns JSON: counts by kind; with a cursor, the next `cursor` (`0` at the end), and of keys how many were `checked`
--- and which are so `large` that they must be checked by pages
--- @error   another option than `resolve`
--- @cost    O(N) of all keys, or of a page

local calls = require("calls")
local consistency = require("consistency")
local older = require("older")

local change = words[1] or ""
if change ~= "" and change ~= "resolve" and change ~= "1" then
  calls.refuse("ConsistencyCheck", 'Unknown option "' .. change .. '"')
end
older.most("ConsistencyCheck", words, 3)
local resolve = change ~= ""
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
if not cursor then
  return cjson.encode(found)
end
found.cursor, found.checked = next_cursor, checked
return older.object(found, { large = older.array(large) })
