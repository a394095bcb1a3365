--- Numbers in records, which clients of any language write and anybody may damage.

local numbers = {}

local LONGEST = 15
local LARGEST = 2 ^ 53

--- A whole number as every client writes it; nil for anything else, such as `inf`, `0x10` or `zz`.
function numbers.whole(text)
  if not text or type(text) == "number" then
    return text or nil
  elseif text == "0" then
    return 0
  end
  return type(text) == "string" and #text <= LONGEST + 1 and text:match("^-?%d+$") and tonumber(text) or nil
end

--- A finite number; nil for anything else.
function numbers.finite(text)
  local number = tonumber(text)
  return number and number > -math.huge and number < math.huge and number or nil
end

local last_number, last_text

--- A number as the wire has it, without a fraction. To write one takes a tenth of a command, three times as long with `%.0f`,
--- and a call writes its time more than once, so the last one is kept.
function numbers.text(number)
  if number ~= last_number then
    local is_exact = number % 1 == 0 and number < LARGEST and number > -LARGEST
    last_number, last_text = number, string.format(is_exact and "%d" or "%.0f", number)
  end
  return last_text
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
