-- Lua 5.1 as Valkey and Redis embed it. Read by: luacheck --config lua/.luacheckrc lua orchestration_queue/protocol/lua
std = "lua51"
max_line_length = 120
max_comment_line_length = false -- a header says one fact a line
read_globals = { "redis", "cjson", "cmsgpack" }

-- A function's file is a body: its header declares the keys, arguments and `queue` that the bundler makes locals. In
-- the bundles, which are checked too, no name is left undefined.
local undefined = { "111", "112", "113" }
files["**/glidemq/*.lua"] = { ignore = undefined }
files["**/orchestration_queue_1/*.lua"] = { ignore = undefined }
files["**/chasquimq/*.lua"] = { ignore = undefined }
files["**/qless/*.lua"] = { ignore = undefined }
files["**/qless/older/*.lua"] = { ignore = undefined }
