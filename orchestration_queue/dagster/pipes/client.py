"""Run a step's external work as a job of the queue; a retried step finds its job again."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster_pipes import PipesExtras
from pydantic import Field, PrivateAttr

from orchestration_queue.client import Job, Queue
from orchestration_queue.dagster._compat import (
    PipesLaunchHandle,
    StepContext,
    attempt_of,
    find_latest_launch_handle,
    record_external_launch,
    record_external_reattach,
)
from orchestration_queue.dagster.assets.results import job_metadata
from orchestration_queue.dagster.pipes.session import DEFAULT_TTL
from orchestration_queue.dagster.pipes.stream import PipesStreamContextInjector, PipesStreamMessageReader
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.routing import with_origin
from orchestration_queue.errors import InvalidOptionError, JobFailedError, JobNotFoundError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = ["PipesJobFailure", "PipesQueueClient"]

_OURS = "orchestration_queue/"


class PipesJobFailure(dg.Failure):
    """A step's job has failed for good.

    Attributes:
        invocation: The reports that the job sent before it failed.
    """

    invocation: dg.PipesClientCompletedInvocation | None = None


class PipesQueueClient(QueueResource, dg.PipesClient):
    """Runs a step's external work as a job of the queue, and passes on its reports.

    The worker's handler opens Pipes with :func:`open_job_pipes`. A step that is retried, or resumed by another
    process, finds its job again: a waiting or running job is not added twice, and a completed job does not run again.
    A failed job is replaced by a new one. Cancelling the run cancels the job.

    Examples:
        >>> import dagster as dg
        >>> defs = dg.Definitions(resources={"pipes": PipesQueueClient(url=dg.EnvVar("OQ_URL"))})
    """

    ttl_seconds: float = Field(
        default=DEFAULT_TTL.total_seconds(),
        ge=1,
        le=365 * 86_400,
        description="How long reports are kept after their last read; a retry must start within this time.",
    )
    cancel_timeout_seconds: float = Field(
        default=20.0, ge=0, description="How long a cancelled run waits for its job to end."
    )

    _calls: Counter[tuple[object, ...]] = PrivateAttr(default_factory=Counter)

    def run(  # type: ignore[override]  # like Dagster's own clients, it takes more arguments than the base class
        self,
        *,
        context: StepContext,
        extras: PipesExtras | None = None,
        queue: str,
        task: str,
        data: Any = None,
        options: JobOptions | None = None,
        name: str | None = None,
    ) -> dg.PipesClientCompletedInvocation:
        """Run a task on the queue, and wait until it ends.

        Args:
            context: The step's context.
            extras: The extras of the task's Pipes context.
            queue: The queue to add the job to.
            task: The task's name.
            data: The task's keyword arguments, or any data that the handler takes.
            options: The job's options. They must keep finished jobs, and set no job id.
            name: The name of this work within the step; default: the number of the step's call of that task. Calls
                from several threads need names.

        Returns:
            The reports of the work.

        Raises:
            PipesJobFailure: The job failed for good: a ``dagster.Failure`` with its reports.
            InvalidOptionError: The options set a job id, or remove finished jobs.
            UsageError: The wire cannot carry the queue, the task or the data.
            TransportError: The server cannot be reached.
        """
        options = JobOptions.coerce(options, "options")
        _check(options)
        launch = _Launch(self, context, queue, task, data, options, self._client_name(context, queue, task, name))
        return launch.run(extras)

    def _client_name(self, context: StepContext, queue: str, task: str, name: str | None) -> str:
        """Return a name by which later attempts find this work; it is equal if the step makes the same calls."""
        return f"PipesQueueClient {queue} {name or self._add_number(context, queue, task)}"

    def _add_number(self, context: StepContext, queue: str, work: str) -> str:
        """Add to work without a name the number of the step's call for it."""
        call = (*attempt_of(context), queue, work)
        self._calls[call] += 1
        return f"{work} {self._calls[call]}"

    def _describe(self, record: JobRecord) -> Mapping[str, dg.MetadataValue]:  # noqa: ARG002  for subclasses
        """Return metadata in addition to that of the job."""
        return {}


def _check(options: JobOptions) -> None:
    kept = (options.remove_on_complete, options.remove_on_fail)
    if options.job_id is not None:
        raise InvalidOptionError(
            "The client sets the job's id, by which a step finds it again; remove job_id, and pass name instead."
        )
    if any(retention is not None and retention.count == 0 for retention in kept):
        raise InvalidOptionError(
            "The step reads its outcome from the job, but `retention` removes that at once; pass `Retention(age=...)`."
        )


@dataclass(frozen=True, slots=True)
class _Launch:
    """One call of a step: adds or finds the job, and waits until it ends."""

    client: PipesQueueClient
    context: StepContext
    queue: str
    task: str
    data: Any
    options: JobOptions
    client_name: str

    def run(self, extras: PipesExtras | None) -> dg.PipesClientCompletedInvocation:
        handle = self._find_launch()
        job_id = handle.external_run_id if handle else f"pipes-{uuid.uuid4().hex}"
        shared: Mapping[str, Any] = {
            "connection": self.client.connection,
            "session": job_id,
            "prefix": self.client.prefix,
            "ttl": timedelta(seconds=self.client.ttl_seconds),
        }
        injector = PipesStreamContextInjector(**shared)
        reader = PipesStreamMessageReader(**shared, reader=self.context.run.run_id)
        failure: PipesJobFailure | None = None
        with dg.open_pipes_session(self.context, injector, reader, extras) as session:
            self._record(handle, job_id)
            # Add it even if there is a handle: an attempt may have died after recording the job and before adding it.
            options = with_origin(self.options, self.context).model_copy(update={"job_id": job_id})
            with self.client.queue(self.queue) as queue:
                try:
                    job = queue.add(self.task, self.data, options)
                    failure = self._await(job)
                except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt):
                    self._cancel(queue, job_id)
                    raise
                metadata = self._metadata(job)
        invocation = dg.PipesClientCompletedInvocation(session, metadata=metadata)
        if failure is not None:
            failure.invocation = invocation
            raise failure
        return invocation

    def _find_launch(self) -> PipesLaunchHandle | None:
        """Find the handle of the job that an earlier attempt of the step added; None if that job failed."""
        handle = find_latest_launch_handle(self.context, client_name=self.client_name)
        if handle is None:
            return None
        keys = QueueKeys(self.queue, self.client.prefix)
        record = self.client.connection.run(job_records.job(keys, handle.external_run_id, ("state",)), repeatable=True)
        is_over = record is not None and record.state is JobState.FAILED
        return None if is_over else handle

    def _record(self, handle: PipesLaunchHandle | None, job_id: str) -> None:
        """Record the job's id before the job is added, so that no later attempt adds a second job."""
        if handle is not None:
            record_external_reattach(self.context, handle)
            return
        extras = {"queue": self.queue, "task": self.task}
        record_external_launch(self.context, client_name=self.client_name, external_run_id=job_id, extras=extras)

    def _await(self, job: Job) -> PipesJobFailure | None:
        """Wait until the job ends; return its failure, to be raised after all its reports are read."""
        try:
            job.wait(timeout=None)
            return None
        except JobFailedError as failed:
            return self._failure(job, failed)

    def _cancel(self, queue: Queue, job_id: str) -> None:
        """Cancel the job, which may exist even if the interrupt came before the reply to its addition."""
        self.context.log.info(f"Canceling job {job_id} of queue {self.queue}")
        try:
            job = queue.get(job_id)
            job.cancel()
            job.wait(timeout=self.client.cancel_timeout_seconds)
        except (JobFailedError, JobNotFoundError):
            return
        except TimeoutError:
            self.context.log.warning(f"Job {job_id} of queue {self.queue} has not ended yet; its worker will end it.")

    def _failure(self, job: Job, failed: JobFailedError) -> PipesJobFailure:
        return PipesJobFailure(
            f"Job {job.id} of queue {self.queue} failed: {failed.reason}", metadata=self._metadata(job)
        )

    def _metadata(self, job: Job) -> dict[str, dg.MetadataValue]:
        """Describe the job without its result: its reports are shown instead."""
        described = job_metadata(job.record, queue=self.queue, logs=job.logs())
        ours = {name: value for name, value in described.items() if name.startswith(_OURS)}
        return {**ours, **self.client._describe(job.record)}
