-- What a call says: its words checked, and refusals in the form `Put(): Arg "jid" missing`.
local calls = {}

function calls.refuse(command, why)
  error(command .. "(): " .. why)
end

--- Return the text of an error that was caught.
function calls.reason(caught)
  return type(caught) == "table" and caught.err or tostring(caught)
end

function calls.text(command, name, word)
  if not word then
    calls.refuse(command, 'Arg "' .. name .. '" missing')
  end
  return word
end

function calls.number(command, name, word)
  local number = tonumber(calls.text(command, name, word))
  -- Lua takes `nan` and `inf` for numbers; no score or day can be made of them.
  if not number or number - number ~= 0 then
    calls.refuse(command, 'Arg "' .. name .. '" not a number: ' .. tostring(word))
  end
  return number
end

--- Return text that keys are made of.
function calls.name(command, name, word)
  if calls.text(command, name, word) == "" then
    calls.refuse(command, 'Arg "' .. name .. '" must not be empty')
  end
  return word
end

function calls.names(command, name, words)
  for _, word in ipairs(words) do
    calls.name(command, name, word)
  end
  return words
end

local function at_least(command, name, word, least)
  local number = calls.number(command, name, word)
  if number < least then
    calls.refuse(command, 'Arg "' .. name .. '" must be at least ' .. least .. ", got " .. word)
  end
  return math.floor(number)
end

--- Return how many are asked for.
function calls.count(command, name, word)
  return at_least(command, name, word, 1)
end

--- Return how many are skipped, or may be none.
function calls.offset(command, name, word)
  return at_least(command, name, word, 0)
end

--- Decode JSON text. `null` is a value, `false` is refused, as clients expect.
function calls.decoded(command, name, word)
  local is_json, value = pcall(cjson.decode, calls.text(command, name, word))
  if not is_json or not value then
    calls.refuse(command, 'Arg "' .. name .. '" not JSON: ' .. word)
  end
  return value
end

--- Return JSON text as it came, for data whose bytes are kept.
function calls.json(command, name, word)
  calls.decoded(command, name, word)
  return word
end

--- Return a list of text or numbers that came as JSON.
function calls.list(command, name, word)
  local list = calls.decoded(command, name, word)
  local count = 0
  if type(list) == "table" then
    for _, item in pairs(list) do
      count = count + 1
      if type(item) ~= "string" and type(item) ~= "number" then
        count = -1
        break
      end
    end
  end
  if type(list) ~= "table" or count ~= #list then
    calls.refuse(command, 'Arg "' .. name .. '" not an array of text: ' .. word)
  end
  return list
end

--- Return options given as alternating names and values. Names that `readers` does not know are ignored.
function calls.options(command, words, readers)
  local options = {}
  for index = 1, #words, 2 do
    local read = readers[words[index]]
    if read then
      options[words[index]] = read(command, words[index], words[index + 1])
    end
  end
  return options
end

return calls
