--- Set an option.
--- @arg     option text its name
--- @arg     value  text its value
--- @returns nil
--- @cost    O(1)

local messages = require("messages")

messages.log("config_set", { option = option, value = value })
redis.call("HSET", "ql:config", option, value)
