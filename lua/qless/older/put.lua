--- Make a job, or move one that exists.
--- @key  queue  name   where it goes
--- @arg  jid    name   its id
--- @arg  klass  text   what runs it
--- @arg  data   json   its data
--- @arg  now    number the time in seconds
--- @arg  delay  number seconds to wait
--- @arg* words  text   `priority` n (lower comes first), `tags` json, `retries` n, `depends` json
--- @returns the jid
--- @error   an unknown option, or both a delay and dependencies
--- @cost    O(log N), and O(log N) per tag and dependency

local calls = require("calls")
local creation = require("creation")
local older = require("older")

local READERS = { priority = calls.number, retries = older.retries, tags = older.distinct, depends = older.distinct }
local options = older.options("Put", words, READERS, delay)
options.priority = options.priority and older.flip(options.priority)
older.forget_delay(jid)
return creation.put(
  now,
  { me = "", queue = queue, jid = jid, klass = klass, data = data, delay = delay, options = options, is_older = true }
)
