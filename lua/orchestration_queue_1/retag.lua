--- Add and remove tags of a job.
--- @queue   job!
--- @key   job                  hash         the job; must end in `job:` and its id
--- @arg   job_id               text         the job
--- @arg   now_ms               int          epoch ms
--- @arg   added_count          int #added   how many follow
--- @arg   removed_count        int #removed how many follow
--- @each    added TagAdded: a tag to add
--- @arg   name                 text         the tag
--- @end     added
--- @each    removed TagRemoved: a tag to take off
--- @arg   name                 text         the tag
--- @end     removed
--- @returns text `ok`, `not_found`, or `too_many` when it would have more than 20, and then nothing was changed
--- @error   the job key does not end in `job:` and the id
--- @cost    O(log N) per tag

local tags = require("tags")

local key = queue .. "job:" .. job_id
if redis.call("EXISTS", key) == 0 then
  return "not_found"
end
local drop, has, names, entered, left = {}, {}, {}, {}, {}
for _, tag in ipairs(removed) do
  drop[tag.name] = true
end
for _, name in ipairs(tags.read(redis.call("HGET", key, "tags") or nil)) do
  has[name] = true
  local list = drop[name] and left or names
  list[#list + 1] = name
end
for _, tag in ipairs(added) do
  if not has[tag.name] then
    has[tag.name] = true
    names[#names + 1], entered[#entered + 1] = tag.name, tag.name
  end
end
if #names > tags.MOST then
  return "too_many"
end
redis.call("HSET", key, "tags", names[1] and cjson.encode(names) or "[]")
tags.enter(queue, job_id, entered, now_ms)
tags.leave(queue, job_id, left)
return "ok"
