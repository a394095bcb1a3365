--- Return an option, or all of them.
--- @arg* words text none, or an option
--- @returns JSON of all, or the value; nil when it is not known
--- @cost    O(1)

return run("config.get", 0, words)
