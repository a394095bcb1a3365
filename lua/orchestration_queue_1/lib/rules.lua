--- Trigger rules, with Airflow's names and meanings: the effect of the outcomes so far on a waiting job.

local rules = { RUN = "run", UPSTREAM_FAILED = "upstream_failed", SKIPPED = "skipped" }

--- The rule of a job that has run and waits for the end of its children, however that is. No client may ask for it.
rules.CHILDREN_ENDED = "children_ended"

local RUN, UPSTREAM_FAILED, SKIPPED = rules.RUN, rules.UPSTREAM_FAILED, rules.SKIPPED

local VERDICTS = {}

-- A skipped dependency alone decides nothing before the others have ended: one that fails later outranks it, and the
-- outcome must not depend on which of them ends first.
function VERDICTS.all_success(counts, ended)
  if counts.failed > 0 then
    return UPSTREAM_FAILED
  end
  return ended and (counts.skipped > 0 and SKIPPED or RUN)
end

function VERDICTS.all_failed(counts, ended)
  if counts.success + counts.skipped > 0 then
    return SKIPPED
  end
  return ended and RUN
end

function VERDICTS.all_done(_, ended)
  return ended and RUN
end

function VERDICTS.one_success(counts, ended)
  if counts.success > 0 then
    return RUN
  end
  return ended and (counts.failed > 0 and UPSTREAM_FAILED or SKIPPED)
end

function VERDICTS.one_failed(counts, ended)
  if counts.failed > 0 then
    return RUN
  end
  return ended and SKIPPED
end

function VERDICTS.none_failed(counts, ended)
  if counts.failed > 0 then
    return UPSTREAM_FAILED
  end
  return ended and RUN
end

function VERDICTS.none_failed_min_one_success(counts, ended)
  if counts.failed > 0 then
    return UPSTREAM_FAILED
  end
  return ended and (counts.success > 0 and RUN or SKIPPED)
end

function VERDICTS.always()
  return RUN
end

VERDICTS[rules.CHILDREN_ENDED] = VERDICTS.all_done

--- Rules that decide nothing before all have ended.
rules.WAITS_FOR_ALL = { all_done = true, [rules.CHILDREN_ENDED] = true }

--- Whether a node may have a rule of this name.
function rules.is_rule(name)
  return VERDICTS[name] ~= nil and name ~= rules.CHILDREN_ENDED
end

--- Rules that distinguish optional dependencies from others. For the remaining rules, a dependency that counts as
--- completed with any outcome has the same effect.
rules.SINGLE_OUT_OPTIONAL = {
  all_failed = true,
  one_success = true,
  one_failed = true,
  none_failed_min_one_success = true,
}

--- Return the verdict as soon as there is one, false before. `counts` says how many jobs are waited for (`total`), how
--- many ended with `success`, `failed` (or never ran because of a failure) and `skipped`, and, where the rule separates them
--- from the others, how many optional dependencies are `pending` beside these.
--- An unknown or missing rule counts as `all_success`.
function rules.decide(rule, counts)
  local decide = VERDICTS[rule] or VERDICTS.all_success
  local verdict = decide(counts, counts.success + counts.failed + counts.skipped >= counts.total)
  if verdict == RUN and (counts.pending or 0) > 0 and rule ~= "always" then
    return false
  end
  return verdict
end

return rules
