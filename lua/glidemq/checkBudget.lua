--- Return whether a flow may spend more.
--- @key   budget               hash         the flow's budget
--- @returns text `ok`, `exceeded` or `no_budget`
--- @cost    O(1)

local exceeded = redis.call("HGET", budget_key, "exceeded")
if exceeded == "1" then
  return "exceeded"
elseif not exceeded and redis.call("EXISTS", budget_key) == 0 then
  return "no_budget"
end
return "ok"
