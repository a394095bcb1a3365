"""One work item in a queue: a step of a run, a run, or the rest of a run."""

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
from orchestration_queue.dagster.steps.envelope import Isolation, WorkEnvelope, WorkKind, run_job_id, run_prefix
from orchestration_queue.errors import PayloadError, StateError
from orchestration_queue.options import Retention, milliseconds

__all__ = ["KEPT", "Isolation", "WorkItem", "WorkKind", "perform", "run_prefix"]

KEPT = Retention(age=timedelta(days=1))
"""How long jobs of Dagster's stay once they have ended: to look into. Dagster's own log has all that matters."""
_LONGEST_KEY = 120
"""A longer step key is cut in job ids; its hash keeps them apart."""
_MOST_BYTES = 64 << 20
"""No arguments unfold to more: 64 MiB are those of a million steps."""
_STRANGE = re.compile(r"[^A-Za-z0-9_.\-]")


Args: TypeAlias = ExecuteStepArgs | ExecuteRunArgs | ResumeRunArgs

_KINDS: dict[type[Args], WorkKind] = {
    ExecuteStepArgs: WorkKind.STEP,
    ExecuteRunArgs: WorkKind.RUN,
    ResumeRunArgs: WorkKind.RESUME,
}


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A piece of work.

    Attributes:
        args: What Dagster itself passes to a process that does this. The instance's reference is left out: a worker
            has its own, and takes from the queue no word on what to import.
        location: Name of the code location whose code it needs; '' when the worker's only one will do.
        attempt: Of a step: which attempt, 1 for the first.
        resume_attempt: Of the rest of a run: how often it has been resumed, 1 for the first time.
        isolation: In which process it is done.
        timeout: How long it may take; None for as long as it likes.
        env: Environment variables to set for it.
        code_version: Only workers of this version of the code may do it; '' for any.
        memory_mib: The memory that its process may allocate; None for no limit.
        cpu_seconds: The processor time that its process may take; None for no limit.
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
        """The kind of work."""
        return _KINDS[type(self.args)]

    @property
    def run_id(self) -> str:
        """The run that it belongs to."""
        return self.args.run_id

    @property
    def step_key(self) -> str:
        """Of a step: its key, else ''."""
        if not isinstance(self.args, ExecuteStepArgs):
            return ""
        (key,) = self.args.step_keys_to_execute or ("",)
        return key

    @property
    def job_id(self) -> str:
        """The id of its job: the same for the same work, so that launching twice launches once."""
        match self.kind:
            case WorkKind.STEP:
                return f"{run_prefix(self.run_id)}{_legal(self.step_key)}.{self.attempt}"
            case WorkKind.RUN:
                return run_job_id(self.run_id, 0)
            case WorkKind.RESUME:
                return run_job_id(self.run_id, self.resume_attempt)

    def data(self) -> dict[str, object]:
        """Build the job's payload.

        Raises:
            PayloadError: The arguments are larger than any worker takes.
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
        """Read the work that a job's payload holds.

        Raises:
            PayloadError: It holds none.
        """
        try:
            read = WorkEnvelope.model_validate(data)
            args = dg.deserialize_value(_unfolded(read.args))
            if not isinstance(args, ExecuteStepArgs | ExecuteRunArgs | ResumeRunArgs):
                raise TypeError(f"a {type(args).__name__} is no work")
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
    """Do the work in this process and thread. All that happens goes to the instance's event log.

    Args:
        work: What to do. Its environment variables are set, and stay.
        instance: Where the run is, and where its events go.
        isolation: In which kind of process, and why, for the log of a step.

    Returns:
        0, or 1 when a run has failed. A step that failed has said so in the event log, and is 0 too.

    Raises:
        StateError: The instance knows no such run.
        BaseException: What Dagster itself could not handle, an interrupt among others.
    """
    os.environ.update(work.env)
    if work.memory_mib is not None:  # data, and not address space, of which Java and torch reserve plenty
        resource.setrlimit(resource.RLIMIT_DATA, (work.memory_mib << 20, resource.RLIM_INFINITY))
    if work.cpu_seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (work.cpu_seconds, resource.RLIM_INFINITY))
    if (run := instance.get_run_by_id(work.run_id)) is None:
        raise StateError(
            f"Run {work.run_id!r} is not in this worker's instance; start the worker with the DAGSTER_HOME, or the "
            "same storage, of the processes that launch runs, unless the run was deleted."
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
    """Whether a run is still wanted. One that Dagster has as queued leaves that state here, with its job.

    It may be cancelled at this very moment. The later of two events decides about its state, so we look for the other
    one after ours is written: a cancellation writes first, and stops the job second.
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


def _legal(step_key: str) -> str:
    """Spell a step key as part of a job id. Two different keys stay different."""
    legal = _STRANGE.sub("-", step_key)
    if legal == step_key and len(legal) <= _LONGEST_KEY:
        return legal
    return f"{legal[:_LONGEST_KEY]}-{hashlib.sha256(step_key.encode()).hexdigest()[:12]}"


def _unfolded(packed: str) -> str:
    """Unfold what :meth:`WorkItem.data` folded. An endless one is refused before it fills the memory."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(base64.b85decode(packed), _MOST_BYTES)
    if not unpacker.eof:
        raise ValueError("the arguments are cut off, or too long")
    return text.decode()
