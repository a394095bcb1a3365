--- Commands with more words than the stack of a script holds, sent in pieces.

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

--- Send a command with words of a list behind the given ones.
function chunks.call(words, ...)
  local head = { ... }
  for first = 1, #words, WORDS do
    local command = { unpack(head) }
    for index = first, math.min(first + WORDS - 1, #words) do
      command[#command + 1] = words[index]
    end
    redis.call(unpack(command))
  end
end

return chunks
