--- Set an option, or set it back to its default.
--- @arg  option text its name
--- @arg* words  text its value
--- @returns nil
--- @cost    O(1)

if words[1] then
  return run("config.set", 0, { option, words[1] })
end
return run("config.unset", 0, { option })
