--- Complete a job, or its work in one queue.
--- @arg  jid    text its id
--- @arg  worker text its worker
--- @arg  queue  text its queue
--- @arg  data   json its data, kept byte for byte
--- @arg* words  text `next` queue, `delay` n, `depends` json
--- @returns the job's state: `complete`, `waiting`, `scheduled` or `depends`
--- @error   it does not run, or not for this worker and queue
--- @cost    O(log N), and O(log N) per dependent and per completed job that is forgotten

local calls = require("calls")
local completion = require("completion")

-- `next` without a name is a plain completion.
if words[#words] == "next" and #words % 2 == 1 then
  words[#words] = nil
end
local options = calls.options("Complete", words, { next = calls.text, delay = calls.number, depends = calls.list })
if not options.next and (options.delay or 0) > 0 then
  calls.refuse("Complete", '"delay" cannot be used without a "next" queue')
elseif not options.next and #(options.depends or {}) > 0 then
  calls.refuse("Complete", '"depends" cannot be used without a "next" queue')
end
local left, refusal = completion.leave(now, { completion.read(jid, worker, queue, data) }, options.next)
if not left[1] then
  error(refusal)
end
return options.next and completion.advance(now, left[1], options) or completion.finish(now, left)
