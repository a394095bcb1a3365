--- Return the revision of this library.
--- @returns text `4`, growing with every change of the library
--- @cost    O(1)

return "4"
