--- Return the revision of this library. The major version is in its name.
--- @returns text `27`, growing with every change of the library
--- @cost    O(1)

return "27"
