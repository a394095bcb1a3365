--- Make a job, or move one that exists.
--- @arg  me     text   the caller's worker name; the job's owner is told when it is another
--- @arg  queue  text   where the job goes
--- @arg  jid    text   its id
--- @arg  klass  text   what runs it
--- @arg  data   json   its data, kept byte for byte
--- @arg  delay  number seconds to wait
--- @arg* words  text   `priority` n, `tags` json, `retries` n, `depends` json; what is left out is kept
--- @returns the jid
--- @cost    O(log N), and O(log N) per tag and dependency

local creation = require("creation")

local options = creation.options("Put", words)
return creation.put(
  now,
  { me = me, queue = queue, jid = jid, klass = klass, data = data, delay = delay, options = options }
)
