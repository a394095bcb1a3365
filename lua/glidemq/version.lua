--- Return the protocol version of this library.
--- @key?  any                  string       any key of the slot, for clients that must name one
--- @arg   detail               text =       `revision` for the number of the text, too; glide-mq's own text ignores it
--- @returns text `93`; with the number of the text `93.5`, which grows with every change
--- @cost    O(1)

if detail == "revision" then
  return "93." .. REVISION
end
return "93"
