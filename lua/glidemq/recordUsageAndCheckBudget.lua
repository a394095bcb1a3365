--- Add usage to a flow's budget, and return whether it may spend more.
--- @key   budget               hash         the flow's budget
--- @record  usage the arguments that follow are its fields
--- @arg   tokens               json ={}     tokens by category
--- @arg   costs                json ={}     costs by category
--- @arg   weighted_tokens      number =0    tokens that count against the total
--- @arg   total_cost           number =0    cost that counts against the total
--- @end     usage
--- @arg   max_tokens           json ={}     limits by category
--- @arg   max_costs            json ={}     limits by category
--- @returns text `ok`, `exceeded` or `no_budget`
--- @cost    O(C) for C categories

local budgets = require("budgets")

if redis.call("EXISTS", budget_key) == 0 then
  return "no_budget"
end
budgets.record(budget_key, usage)
if not budgets.exceeded(budget_key, max_tokens, max_costs) then
  return "ok"
end
redis.call("HSET", budget_key, "exceeded", 1)
return "exceeded"
