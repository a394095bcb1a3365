--- Set an option back to its default.
--- @arg     option text its name
--- @returns nil
--- @cost    O(1)

local messages = require("messages")

messages.log("config_unset", { option = option })
redis.call("HDEL", "ql:config", option)
