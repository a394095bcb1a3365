--- Refuses arguments of the right type that are meaningless, or would fail half-way through an exchange.

local validate = {}

local KINDS = { c = true, f = true, d = true, w = true, s = true, n = true, g = true }
local FATES = { front = true, back = true, fail = true }
local RETENTION_MODES = { ["0"] = true, ["true"] = true, count = true, age_count = true }

--- Refuse a call, before anything is written.
function validate.refuse(fname, why)
  error({ err = "OQ_BAD_ARGUMENT oq1_" .. fname .. ": " .. why })
end

local function bad(why)
  validate.refuse("exchange", why)
end

function validate.check_limit(fname, limit)
  if limit == 0 then
    validate.refuse(fname, "a limit of 0 gets nowhere")
  end
end

--- Refuse text that is neither empty nor a valid name of a queue.
function validate.check_queue_name(fname, name)
  if name:find("[{}:]") then
    validate.refuse(fname, "'" .. name .. "' is not the name of a queue")
  end
end

local MOST_POOLS = 8

--- The weights of claims by pool, and the names of the pools.
function validate.claims(fname, claims)
  local weights, names = {}, {}
  if #claims < 1 or #claims > MOST_POOLS then
    validate.refuse(fname, "a job claims slots of 1 to " .. MOST_POOLS .. " pools")
  end
  for index, claim in ipairs(claims) do
    if claim.weight < 1 then
      validate.refuse(fname, "a job claims at least 1 slot of a pool")
    end
    weights[claim.pool], names[index] = claim.weight, claim.pool
  end
  return weights, names
end

local function check_entry(entry_id)
  if not entry_id:find("^%d+%-%d+$") then
    bad("'" .. entry_id .. "' is not the id of a stream entry")
  end
end

local function check_entries(list)
  for _, delivery in ipairs(list) do
    check_entry(delivery.entry_id)
  end
end

function validate.check(settlements, hand_backs, deliveries, dead_letter)
  validate.check_queue_name("exchange", dead_letter)
  for _, done in ipairs(settlements) do
    if not KINDS[done.kind] then
      bad("'" .. done.kind .. "' is no kind of settlement")
    elseif done.kind == "g" and not FATES[done.payload] then
      bad("a job whose group is held back goes to 'front' or 'back' or is to 'fail', not to '" .. done.payload .. "'")
    elseif not RETENTION_MODES[done.remove_mode] then
      bad("'" .. done.remove_mode .. "' is no mode of retention")
    elseif done.entry_id ~= "" then
      check_entry(done.entry_id)
    end
  end
  check_entries(hand_backs)
  check_entries(deliveries)
end

return validate
