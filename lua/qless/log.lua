--- Add a message to a job's history.
--- @arg  jid     text its id
--- @arg  message text what happened
--- @arg* words   text more of it, a JSON object
--- @returns nil
--- @error   the job does not exist
--- @cost    O(1)

local calls = require("calls")
local history = require("history")

local more = words[1] and calls.decoded("Log", "data", words[1])
if more and type(more) ~= "table" then
  calls.refuse("Log", 'Arg "data" not an object: ' .. words[1])
elseif redis.call("EXISTS", "ql:j:" .. jid) == 0 then
  calls.refuse("Log", "Job " .. jid .. " does not exist")
end
history.add(jid, now, message, more)
