--- What a flow may spend: running sums and their limits, all on one hash.

local budgets = {}

local function decoded(text)
  local readable, value = pcall(cjson.decode, text)
  return readable and type(value) == "table" and value or {}
end

--- Add one kind of usage: to the total, and by category. Text is sent, which keeps the decimals as they were written.
local function add(key, field, total, by_category)
  if total > 0 then
    redis.call("HINCRBYFLOAT", key, field, tostring(total))
  end
  for category, amount in pairs(decoded(by_category)) do
    local used = tonumber(amount) or 0
    if used > 0 then
      redis.call("HINCRBYFLOAT", key, field .. ":" .. category, tostring(used))
    end
  end
end

local function is_over(key, field, limit)
  local most = tonumber(limit) or 0
  return most > 0 and (tonumber(redis.call("HGET", key, field)) or 0) > most
end

local function any_over(key, field, limits)
  for category, limit in pairs(decoded(limits)) do
    if is_over(key, field .. ":" .. category, limit) then
      return true
    end
  end
  return false
end

function budgets.record(key, usage)
  add(key, "usedTokens", usage.weighted_tokens, usage.tokens)
  add(key, "usedCost", usage.total_cost, usage.costs)
end

--- Whether a limit is passed, of the budget itself or of those given by category.
function budgets.exceeded(key, max_tokens, max_costs)
  local limits = redis.call("HMGET", key, "maxTotalTokens", "maxTotalCost")
  return is_over(key, "usedTokens", limits[1])
    or is_over(key, "usedCost", limits[2])
    or any_over(key, "usedTokens", max_tokens)
    or any_over(key, "usedCost", max_costs)
end

return budgets
