--- Arithmetic of the token bucket. Pure: no command is issued here.
--- Tokens count in thousandths; the remainder carries what a refill rounded off, in thousandths of those.

local tokens = {}

tokens.DEFAULT_COST = 1000

--- Refill a bucket. `bucket` has capacity, refill_rate, and perhaps tokens, last_refill and remainder.
--- @return tokens, last refill, remainder
function tokens.refill(bucket, now)
  local capacity, rate = bucket.capacity, bucket.refill_rate
  local level = bucket.tokens or capacity
  -- A full bucket gains nothing, and the idle time is not saved up for the next deduction.
  if level >= capacity then
    return capacity, now, 0
  end
  local last = bucket.last_refill or now
  local elapsed = now - last
  if elapsed <= 0 or rate <= 0 then
    return level, last, bucket.remainder or 0
  end
  local enough = math.ceil(capacity * 1000 / rate)
  local raw = math.min(elapsed, enough) * rate + (bucket.remainder or 0)
  return math.min(capacity, level + math.floor(raw / 1000)), now, raw % 1000
end

--- How long until `cost` is there.
function tokens.wait_ms(cost, level, refill_rate)
  return math.ceil((cost - level) * 1000 / math.max(refill_rate, 1))
end

return tokens
