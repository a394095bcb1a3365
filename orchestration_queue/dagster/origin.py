"""Which Dagster run a job is for, in the job's headers: read by logs, traces and the sweep."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import dagster as dg

from orchestration_queue.dagster._compat import StepContext, attempt_of, storage_id
from orchestration_queue.dagster.steps.envelope import INSTANCE
from orchestration_queue.options import JobOptions
from orchestration_queue.options.job import Headers

__all__ = ["headers_of", "instance_id", "with_origin"]

_RUN, _JOB = "dagster.run_id", "dagster.job_name"

_instance_ids: WeakKeyDictionary[dg.DagsterInstance, str] = WeakKeyDictionary()


def instance_id(instance: dg.DagsterInstance) -> str:
    """Return the id of an instance's run storage, which is read once."""
    if (known := _instance_ids.get(instance)) is None:
        known = _instance_ids[instance] = storage_id(instance)
    return known


def headers_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Headers:
    """What the jobs of a run and its steps say of where they come from."""
    return Headers({INSTANCE: instance_id(instance), _RUN: run.run_id, _JOB: run.job_name})


def with_origin(options: JobOptions, context: StepContext) -> JobOptions:
    """The options with headers that name the run and the step; what the caller said stays."""
    run_id, step_key, _ = attempt_of(context)
    said = {_RUN: run_id, "dagster.step_key": step_key, _JOB: context.run.job_name}
    return options.model_copy(update={"headers": Headers({**said, **options.headers})})
