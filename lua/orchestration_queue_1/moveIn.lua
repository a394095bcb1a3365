--- Hold the job of a move, unless another job has its id. Repeated within a week, it returns the first reply.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   moving               zset         jobs on the move by when that began
--- @arg   job_id               text         the job
--- @arg   token                text         names the move
--- @arg   source               text         the queue that it comes from
--- @arg   now_ms               int          epoch ms
--- @arg   state                text         its state there: `waiting`, `delayed`, `prioritized` or `failed`
--- @arg   due_ms               int          epoch ms at which it is due, or failed
--- @arg   delay                text         milliseconds until it is due; empty for the state that it had
--- @arg   reads                int          the number of the reading that this is from; an older one changes nothing
--- @arg   field_count          int #fields  how many follow
--- @arg   line_count           int #lines   how many follow
--- @arg   signal_count         int #signals how many follow
--- @arg   parent_count         int #parents how many follow
--- @arg   dep_count            int #deps    how many follow
--- @each    fields MovedField: a field of its record
--- @arg   name                 text         its name
--- @arg   value                text         its value
--- @end     fields
--- @each    lines MovedLine: a line of its log
--- @arg   line                 text         the line
--- @end     lines
--- @each    signals MovedSignal: a signal that it received
--- @arg   signal               text         the signal, as JSON
--- @end     signals
--- @each    parents MovedParent: a job that waits for it
--- @arg   member               text         its queue's keys begin so, and its id
--- @end     parents
--- @arg*  deps                 text         members of the jobs that it waited for
--- @returns text `ok`, or `taken` when another job has its id
--- @error   the id key does not end in `:id`; `OQ_BAD_ARGUMENT` for another state or a malformed delay
--- @cost    O(S) for a job of size S

local moving = require("moving")
local validate = require("validate")

local STATES = { waiting = true, delayed = true, prioritized = true, failed = true }

local function column(items, name)
  local values = {}
  for index, item in ipairs(items) do
    values[index] = item[name]
  end
  return values
end

if not STATES[state] or not delay:find("^%d*$") then
  validate.refuse("moveIn", "a job does not arrive in state '" .. state .. "' with delay '" .. delay .. "'")
end
local flat = {}
for index, field in ipairs(fields) do
  flat[2 * index - 1], flat[2 * index] = field.name, field.value
end
return moving.into(queue, job_id, token, source, now_ms, {
  state = state, due = due_ms, delay = delay, reads = reads, fields = flat, log = column(lines, "line"),
  signals = column(signals, "signal"), parents = column(parents, "member"), deps = deps,
})
