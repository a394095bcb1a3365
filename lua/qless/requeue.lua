--- Move a job that exists.
--- @arg  me     text   the caller's worker name; the job's owner is told when it is another
--- @arg  queue  text   where the job goes
--- @arg  jid    text   its id
--- @arg  klass  text   what runs it
--- @arg  data   json   its data, kept byte for byte
--- @arg  delay  number seconds to wait
--- @arg* words  text   as for `put`
--- @returns the jid
--- @error   the job does not exist
--- @cost    O(log N), and O(log N) per tag and dependency

local calls = require("calls")
local creation = require("creation")

local options = creation.options("Requeue", words)
if redis.call("EXISTS", "ql:j:" .. jid) == 0 then
  calls.refuse("Requeue", "Job " .. jid .. " does not exist")
end
return creation.put(
  now,
  { me = me, queue = queue, jid = jid, klass = klass, data = data, delay = delay, options = options }
)
