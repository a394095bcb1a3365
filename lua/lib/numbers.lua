--- Numbers in records, which clients of any language write and anybody may damage.

local numbers = {}

local LONGEST = 15

--- A whole number as every client writes it; nil for anything else, such as `inf`, `0x10` or `zz`.
function numbers.whole(text)
  if type(text) == "number" then
    return text
  end
  return type(text) == "string" and #text <= LONGEST + 1 and text:match("^-?%d+$") and tonumber(text) or nil
end

--- A finite number; nil for anything else.
function numbers.finite(text)
  local number = tonumber(text)
  return number and number > -math.huge and number < math.huge and number or nil
end

--- Count in a field of a hash. A field that is no whole number counts from 0 again: it must not stop the caller.
function numbers.count(key, field, amount)
  local reply = redis.pcall("HINCRBY", key, field, amount)
  if type(reply) == "number" then
    return reply
  end
  redis.call("HSET", key, field, amount)
  return amount
end

return numbers
