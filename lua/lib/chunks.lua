--- Commands with more words than the stack of a script holds, sent in pieces.

local guarded = require("guarded")

local chunks = {}

local WORDS = 1000

--- Whether any of the keys exists.
function chunks.any_exist(keys)
  for first = 1, #keys, WORDS do
    if redis.call("EXISTS", unpack(keys, first, math.min(first + WORDS - 1, #keys))) > 0 then
      return true
    end
  end
  return false
end

local function send(issue, words, ...)
  local head = { ... }
  for first = 1, #words, WORDS do
    local command = { unpack(head) }
    for index = first, math.min(first + WORDS - 1, #words) do
      command[#command + 1] = words[index]
    end
    issue(unpack(command))
  end
end

--- Send a command with words of a list behind the given ones.
function chunks.call(words, ...)
  send(redis.call, words, ...)
end

--- The same about a key that must stop no call.
function chunks.guarded_call(words, ...)
  send(guarded.call, words, ...)
end

return chunks
