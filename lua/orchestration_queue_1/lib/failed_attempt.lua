--- A failed attempt, and the dead letter when it was the last.

local dead_letters = require("dead_letters")
local retry = require("retry")

local failed_attempt = {}

--- Returns the letter for the job's new state: `r` to be retried, `f` failed.
function failed_attempt.attempt(self, done, job, reason)
  done.failed_reason, done.now_ms, done.backoff_ms = reason, self.now, done.wait_ms
  if retry.again(self.queue, done, job) then
    return "r"
  end
  dead_letters.send(self, done.job_id, job, reason, 1)
  retry.give_up(self.queue, done, job)
  return "f"
end

return failed_attempt
