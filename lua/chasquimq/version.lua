--- Return the revision of this library.
--- @returns text the number of its text, which grows with every change
--- @cost    O(1)

return REVISION
