--- Create jobs of one queue, each as `glidemq_addJob` does.
--- @queue   id!
--- @key   id                   string       counter of automatic ids; must end in `:id`
--- @key   stream               stream       ready jobs
--- @key   scheduled            zset         delayed and prioritized jobs
--- @key   events               stream       lifecycle events
--- @arg   skip_events          flag         emit no `added` event
--- @arg   form_count           int #forms   how many follow
--- @arg   job_count            int #jobs    how many follow
--- @each    forms JobForm: fields that some of the jobs share
--- @like    addJob.job -data -custom_id
--- @end     forms
--- @each    jobs BulkJob: a job to create
--- @arg   form                 int          which of the forms it has, from 0
--- @arg   data                 text         payload, as the serializer wrote it
--- @arg   opts                 json         the caller's options, stored verbatim; empty for those of the form
--- @arg   custom_id            text         the caller's id; empty for an automatic one
--- @end     jobs
--- @returns texts per job its id, `duplicate`, `ERR:COST_EXCEEDS_CAPACITY` or `ERR:ID_EXHAUSTED`; only with an id was that job written
--- @error   the id key does not end in `:id`; `OQ_BAD_ARGUMENT` for a form that is not there
--- @cost    O(log N) per delayed or prioritized job, else O(1) per job

local bulk = require("bulk")
local validate = require("validate")

local common_opts = {}
for place, form in ipairs(forms) do
  common_opts[place] = form.opts
end
for _, job in ipairs(jobs) do
  if not forms[job.form + 1] then
    validate.refuse("addBulk", ("there is no form %.0f"):format(job.form))
  end
end

-- The form itself, completed with the job's own fields.
local function whole(job)
  local form = forms[job.form + 1]
  form.data, form.custom_id = job.data, job.custom_id
  form.opts = job.opts ~= "" and job.opts or common_opts[job.form + 1]
  return form
end

return bulk.add(queue, jobs, skip_events, whole)
