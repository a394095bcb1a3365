--- Make one more job wait for a child.
--- @key   job                  hash         the child
--- @key   parents              set          further jobs that wait for the child
--- @key   parent_deps          set          members the parent waits for
--- @key   parent_job           hash         the parent
--- @key   parent_stream        stream       the parent's queue
--- @key   parent_events        stream       the parent's queue
--- @arg   job_id               text         ignored: the child's id
--- @arg   parent_id            text         the parent
--- @arg   parent_queue         text         the parent's key prefix, `prefix:{queue}`
--- @arg   deps_member          text         the child's name among what the parent waits for
--- @returns text `ok`, `already_completed` or `error:child_not_found`
--- @cost    O(1)

local flows = require("flows")

local child = redis.call("HMGET", job_key, "state", "id")
if not child[1] and not child[2] and redis.call("EXISTS", job_key) == 0 then
  return "error:child_not_found"
end
redis.call("SADD", parents_key, parent_queue .. ":" .. parent_id)
redis.call("SADD", parent_deps_key, deps_member)
if child[1] ~= "completed" then
  return "ok"
end
flows.notify(flows.queue_of(parent_job_key, parent_id), parent_id, deps_member)
return "already_completed"
