"""A work item in a queue: a step of a run, a run, or the rest of a run."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import resource
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import dagster as dg
from pydantic import ValidationError

from orchestration_queue.dagster._compat import (
    DeserializationError,
    ExecuteRunArgs,
    ExecuteStepArgs,
    ResumeRunArgs,
    capture_interrupts,
    execute_run,
    execute_step,
    replace,
    resume_run,
)
from orchestration_queue.dagster.steps.envelope import WorkEnvelope, WorkKind, run_job_id, run_prefix
from orchestration_queue.errors import PayloadError, StateError
from orchestration_queue.options import Retention, milliseconds
from orchestration_queue.options.isolation import Isolation

__all__ = ["KEPT", "WorkItem", "WorkKind", "perform", "run_prefix"]

KEPT = Retention(age=timedelta(days=1))
"""How long to keep jobs of Dagster's after their end, for inspection; Dagster's own log has all of their events."""
_LONGEST_KEY = 120
"""Longer step keys are truncated in job ids, with a hash."""
_MOST_BYTES = 64 << 20
"""Maximum size of decompressed arguments: 64 MiB suffice for a million steps."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.\-]")


Args: TypeAlias = ExecuteStepArgs | ExecuteRunArgs | ResumeRunArgs

_KINDS: dict[type[Args], WorkKind] = {
    ExecuteStepArgs: WorkKind.STEP,
    ExecuteRunArgs: WorkKind.RUN,
    ResumeRunArgs: WorkKind.RESUME,
}


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A step, a run, or the rest of a run, for a worker.

    Attributes:
        args: The arguments that Dagster passes to a process, without the reference to the instance: a worker has its
            own, and must not import classes that the queue names.
        location: The name of its code location; '' for the only one of the worker.
        attempt: The number of a step's attempt, 1 for the first.
        resume_attempt: The number of times that a run was resumed, 1 for the first time.
        isolation: The process that runs it.
        timeout: Time limit; None for no limit.
        env: Environment variables to set for it.
        code_version: The code version that workers must have; '' for any.
        memory_mib: Memory limit of the process; None for no limit.
        cpu_seconds: Processor time limit of the process; None for no limit.
    """

    args: Args
    location: str = ""
    attempt: int = 1
    resume_attempt: int = 0
    isolation: Isolation = Isolation.AUTO
    timeout: timedelta | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    code_version: str = ""
    memory_mib: int | None = None
    cpu_seconds: int | None = None

    @property
    def kind(self) -> WorkKind:
        """The kind of the work item."""
        return _KINDS[type(self.args)]

    @property
    def run_id(self) -> str:
        """The id of its run."""
        return self.args.run_id

    @property
    def step_key(self) -> str:
        """The key of a step; '' for runs."""
        if not isinstance(self.args, ExecuteStepArgs):
            return ""
        (key,) = self.args.step_keys_to_execute or ("",)
        return key

    @property
    def job_id(self) -> str:
        """The id of its job: equal for equal work, so that launching it twice adds one job."""
        match self.kind:
            case WorkKind.STEP:
                return f"{run_prefix(self.run_id)}{_encode_key(self.step_key)}.{self.attempt}"
            case WorkKind.RUN:
                return run_job_id(self.run_id, 0)
            case WorkKind.RESUME:
                return run_job_id(self.run_id, self.resume_attempt)

    def data(self) -> dict[str, object]:
        """Build the job's payload.

        Raises:
            PayloadError: The arguments are too large.
        """
        text = dg.serialize_value(replace(self.args, instance_ref=None)).encode()
        if len(text) > _MOST_BYTES:
            raise PayloadError(
                f"The arguments of {self.job_id!r} have {len(text):,} bytes, more than a worker accepts; split the run "
                "into smaller ones."
            )
        data = WorkEnvelope(
            args=base64.b85encode(zlib.compress(text)).decode(),
            location=self.location,
            attempt=self.attempt,
            resume_attempt=self.resume_attempt,
            isolation=self.isolation,
            timeout_ms=None if self.timeout is None else milliseconds(self.timeout),
            env=dict(self.env),
            code_version=self.code_version,
            memory_mib=self.memory_mib,
            cpu_seconds=self.cpu_seconds,
        )
        return data.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_data(cls, data: object) -> WorkItem:
        """Read the work item of a job's payload.

        Raises:
            PayloadError: The payload is not a work item.
        """
        try:
            read = WorkEnvelope.model_validate(data)
            args = dg.deserialize_value(_decompress(read.args))
            if not isinstance(args, ExecuteStepArgs | ExecuteRunArgs | ResumeRunArgs):
                raise TypeError(f"{type(args).__name__} is not a work item")
        except (ValidationError, zlib.error, ValueError, TypeError, LookupError, DeserializationError) as error:
            raise PayloadError(
                f"The job contains no Dagster work item that this version ({dg.__version__}) can read ("
                f"{type(error).__name__}); run the same version on both sides, and no other jobs on this queue."
            ) from error
        return cls(
            args=args,
            location=read.location,
            attempt=read.attempt,
            resume_attempt=read.resume_attempt,
            isolation=read.isolation,
            timeout=None if read.timeout_ms is None else timedelta(milliseconds=read.timeout_ms),
            env=read.env,
            code_version=read.code_version,
            memory_mib=read.memory_mib,
            cpu_seconds=read.cpu_seconds,
        )


def perform(work: WorkItem, instance: dg.DagsterInstance, isolation: str = "") -> int:
    """Run a work item in this process and thread, and write its events to the instance's event log.

    Args:
        work: The work item. Its environment variables remain set.
        instance: The instance of the run.
        isolation: The isolation of the process, and its reason, for the log of a step.

    Returns:
        1 if a run has failed, else 0; also for a step that has failed, whose failure is in the event log.

    Raises:
        StateError: The run does not exist in the instance.
        BaseException: An exception that Dagster does not handle, such as an interrupt.
    """
    os.environ.update(work.env)
    if work.memory_mib is not None:  # data, not address space, because Java and torch reserve much of that
        resource.setrlimit(resource.RLIMIT_DATA, (work.memory_mib << 20, resource.RLIM_INFINITY))
    if work.cpu_seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (work.cpu_seconds, resource.RLIM_INFINITY))
    if (run := instance.get_run_by_id(work.run_id)) is None:
        raise StateError(
            f"Run {work.run_id!r} does not exist in this worker's instance; start the worker with the DAGSTER_HOME, or "
            "the same storage, of the processes that launch runs, unless the run was deleted."
        )
    with capture_interrupts():
        match work.args:
            case ExecuteStepArgs():
                execute_step(work.args, instance, run, work.attempt, isolation)
                return 0
            case _ if not _may_start(run, instance):
                return 0
            case ExecuteRunArgs():
                return execute_run(work.run_id, instance)
            case _:
                return resume_run(work.run_id, instance)


def _may_start(run: dg.DagsterRun, instance: dg.DagsterInstance) -> bool:
    """Return whether a run is still wanted, and move a queued run to the next state.

    The run may be cancelled at the same time. The later of two events decides about its state, so this writes its own
    event and then checks for the other: a cancellation first writes its event, and then stops the job.
    """
    if run.status is dg.DagsterRunStatus.QUEUED:
        starting = dg.DagsterEvent(dg.DagsterEventType.PIPELINE_STARTING.value, job_name=run.job_name)
        instance.report_dagster_event(starting, run_id=run.run_id)
        is_wanted = not instance.all_logs(run.run_id, of_type=dg.DagsterEventType.PIPELINE_CANCELING)
    else:
        is_wanted = run.status is not dg.DagsterRunStatus.CANCELING
    if not is_wanted:
        instance.report_run_canceled(run, "The run was cancelled before a worker had started it.")
    return is_wanted


def _encode_key(step_key: str) -> str:
    """Encode a step key as part of a job id; different keys stay different."""
    encoded = _NOT_IN_IDS.sub("-", step_key)
    if encoded == step_key and len(encoded) <= _LONGEST_KEY:
        return encoded
    return f"{encoded[:_LONGEST_KEY]}-{hashlib.sha256(step_key.encode()).hexdigest()[:12]}"


def _decompress(packed: str) -> str:
    """Decompress arguments up to the maximum size, so that they cannot exhaust the memory."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(base64.b85decode(packed), _MOST_BYTES)
    if not unpacker.eof:
        raise ValueError("the arguments are truncated or too long")
    return text.decode()
