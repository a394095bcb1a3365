"""Start, watch and stop the steps of a run as jobs on queues, for the executor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

import dagster as dg
from pydantic import Field

from orchestration_queue._logging import get_logger
from orchestration_queue.client import Job, Queue
from orchestration_queue.dagster._compat import (
    EngineEventData,
    ExecuteStepArgs,
    IStepContext,
    KnownExecutionState,
    StepHandlerContext,
    check_captured_interrupt,
    replace,
)
from orchestration_queue.dagster.job_health import OVERTIME, Cause, has_stopped
from orchestration_queue.dagster.routing import JobRoute, console_link, headers_of, wire_priority
from orchestration_queue.dagster.steps.step_health import StepHealth, StepVerdict
from orchestration_queue.dagster.steps.work_item import KEPT, WorkItem
from orchestration_queue.errors import JobNotFoundError, OrchestrationQueueError, TransportError
from orchestration_queue.options import JobOptions, as_timedelta
from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import Positive
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.options.job import Headers
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection

__all__ = ["ExecutorOptions", "QueueStepHandler"]

T = TypeVar("T")

log = get_logger("orchestration_queue.dagster")

_OUTAGE_S = 120.0
"""How long to retry while the server is unreachable, before a run with steps to start fails."""
_PAUSE_S = 0.5


def _with_retries(add: Callable[[], T]) -> T:
    """Retry until the server is reachable, or the run is interrupted. Adding a job twice adds it once."""
    deadline = time.monotonic() + _OUTAGE_S
    while True:
        try:
            return add()
        except TransportError as error:
            if time.monotonic() > deadline or check_captured_interrupt():
                raise
            log.warning("A step could not be added to its queue; retrying: %s", error)
            time.sleep(_PAUSE_S)


class ExecutorOptions(Options):
    """The configuration of an executor."""

    url: str | None = Field(default=None, repr=False)
    prefix: str = DEFAULT_PREFIX
    queue: str = "dagster"
    isolation: Isolation = Isolation.AUTO
    step_timeout: Positive | None = None
    unclaimed_timeout: Positive | None = None
    lease: Positive = timedelta(seconds=30)
    max_concurrent: int | None = Field(default=None, ge=1)
    worker_lost_retries: int = Field(default=2, ge=0)
    crash_retries: int = Field(default=0, ge=0)
    env: dict[str, str] = Field(default_factory=dict)
    code_version: str = ""


class QueueStepHandler:
    """Starts, watches and stops the steps of one run at a time.

    Args:
        options: The executor's configuration.

    Attributes:
        watch: The health of the run's steps.
        losses: The number of retries that don't count as attempts of the step, by step and cause.
    """

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options
        self._connection = Connection(options.url)
        self._route = JobRoute(
            options.queue,
            0,
            options.isolation,
            as_timedelta(options.step_timeout),
            options.crash_retries,
            options.worker_lost_retries,
            options.env,
            options.code_version,
        )
        self._current: dict[str, tuple[Queue, str]] = {}
        self.losses: Counter[tuple[str, Cause]] = Counter()
        self.watch: StepHealth

    def begin(self, run_id: str) -> None:
        """Start handling a run."""
        self._current.clear()
        self.losses.clear()
        self.watch = StepHealth(
            self._connection, run_id, as_timedelta(self._options.lease), as_timedelta(self._options.unclaimed_timeout)
        )

    @property
    def name(self) -> str:
        """The name in Dagster's log."""
        return "QueueStepHandler"

    def close(self) -> None:
        """Close the connection. The next run opens another."""
        self.watch.close()
        self._connection.close()

    def ended(self, step_key: str) -> None:
        """Stop watching a step whose end is in Dagster's log."""
        if (current := self._current.pop(step_key, None)) is not None:
            self.watch.drop(current[1])

    def route(self, step_tags: Mapping[str, str], run: dg.DagsterRun) -> JobRoute:
        """Return the queue and options of a step with these tags.

        Raises:
            InvalidOptionError: A tag is invalid.
        """
        return self._route.with_tags(step_tags, run.tags)

    def launch_step(self, context: StepHandlerContext) -> None:
        """Add the step's job, in one exchange. An existing job is used instead, even if it has ended.

        A process that added it may have died before it could report that. Whether the step ended well is then in
        Dagster's log, or its health check finds out.
        """
        work, route = self._work(context)
        queue = self._queue(route)
        headers = headers_of(context.instance, context.dagster_run, work.step_key)
        job = _with_retries(lambda: self._add(queue, work, route, headers))
        self._watch(queue, work)
        # The launcher finds and stops the job through this event (decision 0011).
        dg.DagsterEvent.step_worker_starting(
            context.get_step_context(work.step_key),
            message=f"Step {work.step_key!r} waits as job {job.id!r} on queue {route.queue!r}.",
            metadata={"job": job.id, "queue": route.queue, "attempt": work.attempt},
        )
        if link := console_link(route.queue, job.id):  # Dagster's UI shows metadata of engine events only
            context.instance.report_engine_event(
                f"Step {work.step_key!r} is a job in the queue's console.",
                context.dagster_run,
                EngineEventData(metadata=link),
                step_key=work.step_key,
            )

    def resume_step(self, context: StepHandlerContext) -> None:
        """Watch the job of a step that was launched by another process."""
        work, route = self._work(context)
        queue = self._queue(route)
        try:
            self.watch.listen_to(queue.keys)
        except TransportError as error:
            log.warning("The events of queue %s cannot be read; retrying soon: %s", route.queue, error)
        self._watch(queue, work)

    def _watch(self, queue: Queue, work: WorkItem) -> None:
        self.watch.add(queue.keys, work.job_id, work.code_version)
        self._current[work.step_key] = queue, work.job_id

    def _queue(self, route: JobRoute) -> Queue:
        return Queue(route.queue, connection=self._connection, prefix=self._options.prefix)

    def _add(self, queue: Queue, work: WorkItem, route: JobRoute, headers: Headers) -> Job:
        options = JobOptions(
            job_id=work.job_id,
            priority=wire_priority(route.priority),
            timeout=route.timeout,
            lease=self._options.lease,
            headers=headers,
            pools=route.pools,
            share=route.share,
            remove_on_complete=KEPT,
            remove_on_fail=KEPT,
        )
        # Before the job is added, so that none of its events is missed.
        self.watch.listen_to(queue.keys)
        return queue.add(work.kind, work.data(), options)

    def _work(self, context: StepHandlerContext) -> tuple[WorkItem, JobRoute]:
        """Build the step's work item. Lost attempts don't count against the step's retry policy."""
        args: ExecuteStepArgs = context.execute_step_args
        (key,) = context.step_tags
        attempt = 1
        if known := args.known_state:
            attempt += known.previous_retry_attempts.get(key, 0)
            args = replace(args, known_state=self.without_losses(known))
        run = context.dagster_run
        route = self.route(context.step_tags[key], run)
        origin = run.remote_job_origin
        work = WorkItem(
            args,
            location=origin.location_name if origin else "",
            attempt=attempt,
            isolation=route.isolation,
            timeout=route.timeout,
            env=route.env,
            code_version=route.code_version,
            memory_mib=route.memory_mib,
            cpu_seconds=route.cpu_seconds,
        )
        return work, route

    def without_losses(self, known: KnownExecutionState) -> KnownExecutionState:
        """Return the known state without attempts that were lost or crashed."""
        attempts = {
            key: count - sum(self.losses[key, cause] for cause in Cause)
            for key, count in known.previous_retry_attempts.items()
        }
        return known._replace(previous_retry_attempts=attempts)

    def retries_of(self, cause: Cause, step_context: IStepContext) -> int:
        """Return how often to retry a step for this cause, in addition to its retry policy."""
        route = self.route(step_context.step.tags or {}, step_context.dagster_run)
        match cause:
            case Cause.LOST:
                return route.worker_lost_retries
            case Cause.CRASHED:
                return route.crash_retries
            case Cause.FAILED:
                return 0

    def check_step(self, context: StepHandlerContext, *, has_started: bool) -> StepVerdict | None:
        """Return why the step will not end on its own, and cancel its job; None if it will.

        Args:
            context: The step.
            has_started: Whether Dagster's log has the start of its attempt.
        """
        work, route = self._work(context)
        queue = self._queue(route)
        self._current[work.step_key] = queue, work.job_id
        try:
            self.watch.listen_to(queue.keys)
            verdict = self.watch.verdict(queue.keys, work.job_id, work.code_version, has_started=has_started)
        except TransportError as error:
            log.warning("The job of step %s cannot be read; retrying soon: %s", work.step_key, error)
            return None
        if verdict is None:
            self._warn_if_unserved(context, work)
            return None
        if verdict.reason.endswith(OVERTIME) and route.timeout:
            limit = f"{verdict.reason} after {route.timeout.total_seconds():g} s"
            reason = f"{limit}, set by `step_timeout` or the tag `orchestration_queue/timeout`"
            verdict = StepVerdict(reason, verdict.cause)
        # Otherwise a worker may still start it, beside the next attempt.
        _cancel(queue, work.job_id)
        self.watch.drop(work.job_id)
        return verdict

    def _warn_if_unserved(self, context: StepHandlerContext, work: WorkItem) -> None:
        """Log once per run that a queue has no worker that may run the step."""
        if lack := self.watch.explain_wait(work.job_id):
            context.instance.report_engine_event(
                f"Step {work.step_key!r} waits, because {lack}.", context.dagster_run, step_key=work.step_key
            )

    def stop_steps(self, contexts: Sequence[StepHandlerContext]) -> None:
        """Cancel the jobs of steps. One exchange for each; workers stop those that run."""
        for context in contexts:
            work, route = self._work(context)
            queue = self._queue(route)
            self._watch(queue, work)
            _cancel(queue, work.job_id)

    def has_stopped(self, step_key: str) -> bool:
        """Return whether no worker runs a step whose job was cancelled. At most two exchanges."""
        if (current := self._current.get(step_key)) is None:
            return True
        queue, job_id = current
        try:
            return has_stopped(queue, job_id)
        except OrchestrationQueueError:
            return False  # asked again soon


def _cancel(queue: Queue, job_id: str) -> None:
    try:
        queue.cancel(job_id)
    except JobNotFoundError:
        return
    except OrchestrationQueueError as error:
        log.warning("Job %s of queue %s could not be canceled: %s", job_id, queue.keys.queue, error)
