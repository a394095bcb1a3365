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

local function send(issue, words, command, key, further)
  for first = 1, #words, WORDS do
    local last = math.min(first + WORDS - 1, #words)
    if further then
      issue(command, key, further, unpack(words, first, last))
    else
      issue(command, key, unpack(words, first, last))
    end
  end
end

--- Send a command on a key with the words of a list last, behind a `further` one that may be left out.
function chunks.call(words, command, key, further)
  send(redis.call, words, command, key, further)
end

--- The same about a key that must stop no call.
function chunks.guarded_call(words, command, key, further)
  send(guarded.call, words, command, key, further)
end

return chunks
