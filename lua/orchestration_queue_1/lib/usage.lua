--- What jobs used: on the job itself, and added up by the minute in which it was reported.

local usage = {}

local KEPT_S = 2592000
local NAMES = {
  "model", "provider", "tokens", "totalTokens", "costs", "totalCost", "costUnit", "latencyMs", "cached", "bucketTs",
}

local KNOWN, FIELDS = {}, {}
for index = 1, #NAMES do -- a library has no `ipairs` while it loads
  local name = NAMES[index]
  KNOWN[name], FIELDS[index] = name ~= "bucketTs", "usage:" .. name
end

--- A report as a table by name.
function usage.read(fields)
  local report = {}
  for _, field in ipairs(fields) do
    if not KNOWN[field.name] then
      error({ err = "OQ_BAD_ARGUMENT oq1_reportUsage: '" .. field.name .. "' is no part of a report" })
    end
    report[field.name] = field.value
  end
  return report
end

--- The shortest text that means exactly this number: so that what is taken away is what was added.
local function exact(number)
  local text
  for digits = 14, 17 do
    text = string.format("%." .. digits .. "g", number)
    if tonumber(text) == number then
      break
    end
  end
  return text
end

local function add_amount(key, field, stored, sign)
  local amount = tonumber(stored)
  if amount and amount > 0 and amount < math.huge then
    redis.call("HINCRBYFLOAT", key, field, exact(sign * amount))
  end
end

local function add_categories(key, prefix, stored, sign)
  local readable, amounts = pcall(cjson.decode, stored or "{}")
  for category, amount in pairs(readable and type(amounts) == "table" and amounts or {}) do
    add_amount(key, prefix .. category, amount, sign)
  end
end

--- Count a report in its minute, or with the sign -1 no more.
local function add(key, report, sign)
  redis.call("HINCRBY", key, "jobCount", sign)
  add_amount(key, "totalTokens", report.totalTokens, sign)
  add_amount(key, "totalCost", report.totalCost, sign)
  add_categories(key, "tokens:", report.tokens, sign)
  add_categories(key, "costs:", report.costs, sign)
  if report.model then
    redis.call("HINCRBY", key, "models:" .. report.model, sign)
  end
  if report.costUnit and sign > 0 then
    redis.call("HSET", key, "costUnit", report.costUnit)
  end
  redis.call("EXPIRE", key, KEPT_S)
end

local function write(queue, job_key, report, minute)
  local flat = {}
  for name, value in pairs(report) do
    flat[#flat + 1] = "usage:" .. name
    flat[#flat + 1] = value
  end
  redis.call("HSET", job_key, "usage:bucketTs", minute, unpack(flat))
  add(queue .. "usage:" .. minute, report, 1)
end

--- Put a report in the place of an earlier one. An empty one only takes that back.
function usage.replace(queue, job_key, report, minute)
  local earlier = {}
  for index, value in ipairs(redis.call("HMGET", job_key, unpack(FIELDS))) do
    earlier[NAMES[index]] = value or nil
  end
  redis.call("HDEL", job_key, unpack(FIELDS))
  -- A minute past retention is not created again only to be subtracted from.
  local old_key = earlier.bucketTs and queue .. "usage:" .. earlier.bucketTs
  if old_key and redis.call("EXISTS", old_key) == 1 then
    add(old_key, earlier, -1)
  end
  if next(report) then
    write(queue, job_key, report, minute)
  end
end

return usage
