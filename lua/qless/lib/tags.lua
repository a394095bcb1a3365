-- The index of tags. `ql:tags` counts words given, not jobs: it drifts, as clients know it.
local tags = {}

function tags.add(now, jid, tag)
  redis.call("ZADD", "ql:t:" .. tag, now, jid)
  redis.call("ZINCRBY", "ql:tags", 1, tag)
end

function tags.remove(jid, tag)
  redis.call("ZREM", "ql:t:" .. tag, jid)
  redis.call("ZINCRBY", "ql:tags", -1, tag)
end

--- Remove all tags of a job from the index; `encoded` is its field.
function tags.clear(jid, encoded)
  for _, tag in ipairs(cjson.decode(encoded or "[]")) do
    tags.remove(jid, tag)
  end
end

return tags
