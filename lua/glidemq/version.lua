--- Return the protocol version of this library.
--- @key?  any                  string       any key of the slot, for clients that must name one
--- @returns text `93`
--- @cost    O(1)

return "93"
