"""Read the queue and options of steps and runs from their tags, and build the headers that name their origin."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import EnumType
from typing import Annotated, Any, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

import dagster as dg
from pydantic import BeforeValidator, Field

from orchestration_queue.dagster._compat import StepContext, attempt_of, storage_id
from orchestration_queue.dagster.steps.envelope import INSTANCE
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions
from orchestration_queue.options.base import MAX_PRIORITY, Options, suggestion
from orchestration_queue.options.checks import check_job_share, check_weights
from orchestration_queue.options.durations import Positive
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.options.job import MAX_HEADER_LENGTH, Headers

__all__ = [
    "CONFIG_TAG",
    "QUEUE_TAGS",
    "RUN_QUEUE_TAG",
    "JobRoute",
    "StepConfig",
    "console_link",
    "headers_of",
    "instance_id",
    "priority_of",
    "read_tag",
    "wire_priority",
    "with_origin",
]

_RUN, _JOB, _STEP = "dagster.run_id", "dagster.job_name", "dagster.step_key"

_instance_ids: WeakKeyDictionary[dg.DagsterInstance, str] = WeakKeyDictionary()


def instance_id(instance: dg.DagsterInstance) -> str:
    """Return the id of an instance's run storage; read it once per instance."""
    if (known := _instance_ids.get(instance)) is None:
        known = _instance_ids[instance] = storage_id(instance)
    return known


def headers_of(instance: dg.DagsterInstance, run: dg.DagsterRun, step_key: str | None = None) -> Headers:
    """Build the headers that name the instance, the run and the step of a job; a run itself has no step."""
    step = {} if step_key is None else {_STEP: step_key[:MAX_HEADER_LENGTH]}
    return Headers({INSTANCE: instance_id(instance), _RUN: run.run_id, _JOB: run.job_name, **step})


def with_origin(options: JobOptions, context: StepContext) -> JobOptions:
    """Add headers that name the run and the step to options; the caller's headers take precedence."""
    run_id, step_key, _ = attempt_of(context)
    origin = {_RUN: run_id, _STEP: step_key, _JOB: context.run.job_name}
    return options.model_copy(update={"headers": Headers({**origin, **options.headers})})


def console_link(queue: str, job_id: str) -> dict[str, dg.MetadataValue]:
    """Return a link to a job's page of the console that ``OQ_CONSOLE_URL`` names, as metadata; nothing without it."""
    console = os.environ.get("OQ_CONSOLE_URL", "").rstrip("/")
    page = f"{console}/ui/queues/{quote(queue, safe='')}/jobs/{quote(job_id, safe='')}"
    return {f"{PREFIX}console": dg.MetadataValue.url(page)} if console else {}


T = TypeVar("T")

PREFIX = "orchestration_queue/"
QUEUE_TAGS = (f"{PREFIX}queue", "dagster-celery/queue")
"""Tags of ops and runs that name a queue; the first one present applies."""
RUN_QUEUE_TAG = f"{PREFIX}run_queue"
"""Tag for the queue of a run itself; the other tags apply to its steps, too."""
CONFIG_TAG = f"{PREFIX}config"
"""JSON with the fields of :class:`StepConfig`."""
_PRIORITY = f"{PREFIX}priority"
_CELERY_DEFAULT = 5
"""The priority in dagster-celery of an op without a tag; elsewhere in Dagster that is 0."""
_PLAIN = MAX_PRIORITY // 2


class StepConfig(Options):
    """The fields of the tag ``orchestration_queue/config`` of an op, an asset or a run, as JSON."""

    timeout: Positive | None = None
    """Time limit of the step in seconds."""
    isolation: Isolation | None = None
    """The process of the step: auto, fork, in_process or spawn."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables in addition to the executor's. They go through the queue, so pass no secrets."""
    crash_retries: int | None = Field(default=None, ge=0)
    """How often to retry the step after its process crashed."""
    worker_lost_retries: int | None = Field(default=None, ge=0)
    """How often to retry the step after its worker was lost."""
    code_version: str | None = None
    """Run the step only on workers with this version of the code."""
    memory_mib: int | None = Field(default=None, ge=1)
    """Memory limit of the step's process, including that of its fork server; above it ``MemoryError`` is raised."""
    cpu_seconds: int | None = Field(default=None, ge=1)
    """Processor time limit of the step's process; the kernel kills a process that exceeds it."""
    pools: Annotated[Mapping[str, int], BeforeValidator(check_weights)] | None = None
    """Slots of the queue's pools that the step uses while it runs."""
    share: Annotated[str, BeforeValidator(check_job_share)] | None = None
    """The step's fair share of the queue, such as a tenant's."""


@dataclass(frozen=True, slots=True)
class JobRoute:
    """The queue and options of one step.

    Attributes:
        queue: The queue's name.
        priority: Dagster's priority: the higher, the earlier.
        isolation: The process that runs the step.
        timeout: Time limit; None for no limit.
        crash_retries: How often to retry the step after its process crashed.
        worker_lost_retries: How often to retry the step after its worker was lost.
        env: Environment variables to set for the step.
        code_version: The code version that workers must have; '' for any.
        memory_mib: Memory limit of the process; None for no limit.
        cpu_seconds: Processor time limit of the process; None for no limit.
        pools: Slots of the queue's pools that the step uses while it runs.
        share: The step's fair share; None for none.
    """

    queue: str
    priority: int
    isolation: Isolation
    timeout: timedelta | None
    crash_retries: int = 0
    worker_lost_retries: int = 2
    env: Mapping[str, str] = field(default_factory=dict)
    code_version: str = ""
    memory_mib: int | None = None
    cpu_seconds: int | None = None
    pools: Mapping[str, int] = field(default_factory=dict)
    share: str | None = None

    def with_tags(self, step: Mapping[str, str], run: Mapping[str, str]) -> JobRoute:
        """Apply the tags of a step and its run; the step's tags take precedence.

        Raises:
            InvalidOptionError: A tag is invalid.
        """
        route = self._with(run)._with(step)
        if route.isolation is Isolation.IN_PROCESS and (route.memory_mib or route.cpu_seconds):
            raise InvalidOptionError(
                f"The tag {CONFIG_TAG!r} limits a step that runs `in_process`, where the limit would outlast the step; "
                "remove it, or pass `isolation: fork`."
            )
        return replace(route, priority=priority_of(step, run))

    def _with(self, tags: Mapping[str, str]) -> JobRoute:
        """Apply tags except for the priority. A single tag takes precedence over the config."""
        settings = read_tag(tags, CONFIG_TAG, json.loads, "a JSON object of settings")
        config = StepConfig.coerce(settings, f"the tag {CONFIG_TAG}")
        found: dict[str, Any] = {name: value for name, value in config if value is not None}
        single = {
            "queue": next((tags[name] for name in QUEUE_TAGS if name in tags), None),
            "timeout": read_tag(tags, f"{PREFIX}timeout", _seconds, "a number of seconds above 0"),
            "isolation": read_tag(tags, f"{PREFIX}isolation", Isolation, "auto, fork, in_process or spawn"),
            "crash_retries": read_tag(tags, f"{PREFIX}crash_retries", _count, "a whole number of 0 or more"),
        }
        found |= {name: value for name, value in single.items() if value is not None}
        return replace(self, **{**found, "env": {**self.env, **config.env}})


def priority_of(step: Mapping[str, str], run: Mapping[str, str]) -> int:
    """Return the sum of the priorities of a step and its run; pass no tags of a step for a run itself.

    Raises:
        InvalidOptionError: A tag is not a number.
    """
    return _priority(step, "dagster-celery/priority", _CELERY_DEFAULT) + _priority(
        run, "dagster-celery/run_priority", 0
    )


def wire_priority(priority: int) -> int:
    """Convert Dagster's priority to the queue's, where 1 is the most urgent and 0, no priority, comes last.

    Negative priorities, which Dagster starts last, become 0.
    """
    return 0 if priority <= 0 else max(1, _PLAIN + 1 - priority)


def _priority(tags: Mapping[str, str], celery_name: str, celery_default: int) -> int:
    for name in (_PRIORITY, "dagster/priority"):
        if (found := read_tag(tags, name, int, "a whole number")) is not None:
            return found
    found = read_tag(tags, celery_name, int, "a whole number")
    return 0 if found is None else found - celery_default


def read_tag(tags: Mapping[str, str], name: str, read: Callable[[str], T], expected: str) -> T | None:
    """Read a tag; return None if it is not set.

    Raises:
        InvalidOptionError: The tag's value is invalid.
    """
    if (stored := tags.get(name)) is None:
        return None
    try:
        return read(stored)
    except ValueError:
        near = suggestion(stored, list(read)) if isinstance(read, EnumType) else ""
        advice = near or "; correct it."
        raise InvalidOptionError(f"The tag {name!r} must be {expected}, got {stored!r}{advice}") from None


def _seconds(stored: str) -> timedelta:
    seconds = timedelta(seconds=float(stored))
    if seconds <= timedelta(0):
        raise ValueError(stored)
    return seconds


def _count(stored: str) -> int:
    if (count := int(stored)) < 0:
        raise ValueError(stored)
    return count
