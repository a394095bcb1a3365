"""Which run of Dagster's a job is for, in the job's headers: logs and traces elsewhere tell it."""

from __future__ import annotations

from orchestration_queue.dagster._compat import StepContext, attempt_of
from orchestration_queue.options import JobOptions
from orchestration_queue.options.job import Headers

__all__ = ["with_origin"]


def with_origin(options: JobOptions, context: StepContext) -> JobOptions:
    """The options with headers that name the run and the step; what the caller said stays."""
    run_id, step_key, _ = attempt_of(context)
    said = {"dagster.run_id": run_id, "dagster.step_key": step_key, "dagster.job_name": context.run.job_name}
    return options.model_copy(update={"headers": Headers({**said, **options.headers})})
