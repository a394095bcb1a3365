"""The run launcher: each run is a job on a queue, executed by the workers of ``oq dagster worker``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

import dagster as dg
from pydantic import Field

from orchestration_queue.client import Job
from orchestration_queue.dagster._compat import (
    CheckRunHealthResult,
    ConfigurableClass,
    ConfigurableClassData,
    EngineEventData,
    ExecuteRunArgs,
    LaunchRunContext,
    ResumeRunArgs,
    ResumeRunContext,
    RunLauncher,
    WorkerStatus,
)
from orchestration_queue.dagster.job_health import OVERTIME
from orchestration_queue.dagster.routing import (
    QUEUE_TAGS,
    RUN_QUEUE_TAG,
    console_link,
    headers_of,
    priority_of,
    wire_priority,
)
from orchestration_queue.dagster.runs.run_jobs import (
    JOB,
    QUEUE,
    JobAddress,
    RunJobs,
    find_run_job,
    find_step_jobs,
    report_ends,
)
from orchestration_queue.dagster.steps.envelope import run_job_id
from orchestration_queue.dagster.steps.work_item import KEPT, WorkItem
from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.options import JobOptions, as_timedelta, seconds
from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import DurationField, Positive
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import Pauses

__all__ = ["LauncherOptions", "QueueRunLauncher"]

_OUTAGE_S = 10.0
"""How long a run's job waits for an unreachable server, beside the connection's own time limits."""
_STOP_S = 20.0
"""How long to wait for a run to stop: a worker kills a step after its grace period, 10 s by default, and a run 5 s
later."""
_DURATIONS = ("lease", "run_timeout")
"""The options in seconds."""


class LauncherOptions(Options):
    """The configuration of a launcher."""

    url: str | None = Field(default=None, repr=False)
    prefix: str = DEFAULT_PREFIX
    queue: str = "dagster-runs"
    lease: Annotated[DurationField, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] = timedelta(seconds=30)
    run_timeout: Positive | None = None
    env: dict[str, str] = Field(default_factory=dict)
    code_version: str = ""
    match_image: bool = False


class QueueRunLauncher(RunLauncher[dg.DagsterInstance], ConfigurableClass):
    """Launches runs as jobs on a queue.

    Launching adds one job and starts no process. A worker takes the job, and executes the run in a fork of a process
    that has the code loaded. A run can have these tags: ``orchestration_queue/run_queue`` for its queue (or
    ``orchestration_queue/queue``, which also applies to its steps), and ``dagster/priority``; higher priorities start
    earlier.

    In ``dagster.yaml``::

        run_launcher:
          module: orchestration_queue.dagster
          class: QueueRunLauncher
          config:
            url: {env: OQ_URL}

    Args:
        options: Its configuration.
        inst_data: Dagster's own.

    Raises:
        InvalidNameError: The queue's name or the prefix is invalid.
        UsageError: The URL is invalid.
    """

    def __init__(self, options: LauncherOptions | None = None, inst_data: ConfigurableClassData | None = None) -> None:
        self._options = options or LauncherOptions()
        self._inst_data = inst_data
        self._connection = Connection(self._options.url)  # it connects on first use: all processes have a launcher
        self.jobs = RunJobs(self._connection, self._options.prefix)
        self.jobs.queue(self._options.queue)

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """Dagster's data for creating another instance."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, dg.Field]:
        """Return the schema of its configuration in ``dagster.yaml``."""
        fields: dict[str, tuple[Any, str]] = {
            "url": (dg.StringSource, "The server; default OQ_URL, else the embedded server of this directory."),
            "prefix": (dg.StringSource, "First part of every key."),
            "queue": (dg.StringSource, "The queue whose workers execute runs, unless a tag names another."),
            "lease": (float, "Seconds without a heartbeat after which a run's worker counts as lost."),
            "run_timeout": (float, "Time limit of a run in seconds; default none."),
            "env": ({str: dg.StringSource}, "Environment variables of runs. They go through the queue: no secrets."),
            "code_version": (dg.StringSource, "The code version of workers that execute runs; default any."),
            "match_image": (
                bool,
                "Execute runs only on workers whose code version equals the image of the run's code location, its "
                "DAGSTER_CURRENT_IMAGE. Runs of locations without an image use `code_version`.",
            ),
        }
        return {
            name: dg.Field(kind, is_required=False, description=description)
            for name, (kind, description) in fields.items()
        }

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        """Create one from the configuration in ``dagster.yaml``.

        Raises:
            InvalidOptionError: A value is out of range.
        """
        options = {name: value for name, value in config_value.items() if value is not None}
        options |= {name: timedelta(seconds=options[name]) for name in _DURATIONS if name in options}
        return cls(LauncherOptions(**options), inst_data)

    @property
    def queue(self) -> str:
        """The queue of runs without a tag for another one."""
        return self._options.queue

    def dispose(self) -> None:
        """Close the connection."""
        self._connection.close()

    def launch_run(self, context: LaunchRunContext) -> None:
        """Add the run's job, in one exchange. A run that was launched before is unchanged.

        Raises:
            InvalidOptionError: A tag of the run is invalid.
            UsageError: The run has no code origin.
            TransportError: The server is unreachable.
        """
        run = context.dagster_run
        self._add(
            run,
            WorkItem(ExecuteRunArgs(_origin(run), run.run_id, None), timeout=as_timedelta(self._options.run_timeout)),
        )

    @property
    def supports_resume_run(self) -> bool:
        """True: if a run's worker is lost, another worker resumes the run, and its steps continue meanwhile."""
        return True

    def resume_run(self, context: ResumeRunContext) -> None:
        """Add a job for the rest of the run, in one exchange. Running steps continue, and the run finds them again.

        Its timeout counts from the run's first start. If it has expired, the run fails.

        Raises:
            UsageError: The run has no code origin.
            TransportError: The server is unreachable.
        """
        run = context.dagster_run
        args = ResumeRunArgs(_origin(run), run.run_id, None)
        left = self._time_left(run.run_id)
        if left is not None and left < timedelta(milliseconds=1):
            self._stop(run)
            self._fail_overdue(run)
            return
        self._add(run, WorkItem(args, resume_attempt=context.resume_attempt_number or 1, timeout=left))

    def _time_left(self, run_id: str) -> timedelta | None:
        """Return the time until a run exceeds its timeout; None without one."""
        limit, record = as_timedelta(self._options.run_timeout), self._instance.get_run_record_by_id(run_id)
        if limit is None or record is None or record.start_time is None:
            return limit
        return limit - (datetime.now(UTC) - datetime.fromtimestamp(record.start_time, UTC))

    def _fail_overdue(self, run: dg.DagsterRun, limit_s: float = 0) -> None:
        limit = self._options.run_timeout
        if limit is not None:  # the job of a resumed run has only the rest of the limit
            limit_s = seconds(limit)
        self._instance.report_run_failed(run, f"The run took longer than {limit_s:g} s.")

    def _add(self, run: dg.DagsterRun, work: WorkItem) -> None:
        origin = run.remote_job_origin
        image = _origin(run).repository_origin.container_image if self._options.match_image else None
        work = replace(
            work,
            location=origin.location_name if origin else "",
            env=self._options.env,
            code_version=image or self._options.code_version,
        )
        options = JobOptions(
            job_id=work.job_id,
            priority=wire_priority(priority_of({}, run.tags)),
            timeout=work.timeout,
            lease=self._options.lease,
            headers=headers_of(self._instance, run),
            remove_on_complete=KEPT,
            remove_on_fail=KEPT,
        )
        place = JobAddress(self._queue_of(run), work.job_id)
        # Before the event: without it, the job is still found by its id, which the run's determines (decision 0011).
        job = self._add_job(place, work, options)
        self._instance.report_engine_event(
            f"Run waits as {place}." if job.is_new else f"Run was launched before, as {place}.",
            run,
            EngineEventData(
                metadata={JOB: place.job_id, QUEUE: place.queue, **console_link(place.queue, place.job_id)}
            ),
            cls=type(self),
        )

    def _add_job(self, place: JobAddress, work: WorkItem, options: JobOptions) -> Job:
        """Add a job, also when the server restarts meanwhile: Dagster fails a run whose launch or resume raises."""
        pauses = Pauses()
        while True:
            try:
                return self.jobs.queue(place.queue).add(work.kind, work.data(), options)
            except TransportError:  # if only the reply was lost, adding it again finds it by its id
                if pauses.waited_s > _OUTAGE_S:
                    raise
            time.sleep(pauses.next_s())

    def _queue_of(self, run: dg.DagsterRun) -> str:
        """Return a run's queue, from its tags."""
        return next((run.tags[tag] for tag in (RUN_QUEUE_TAG, *QUEUE_TAGS) if tag in run.tags), self._options.queue)

    def find_job(self, run: dg.DagsterRun) -> JobAddress:
        """Find the job that executes a run now. Reads the run's log once."""
        return find_run_job(self._instance, run.run_id, self._queue_of(run))

    def without_a_job(self, runs: Sequence[dg.DagsterRun]) -> list[dg.DagsterRun]:
        """Return the runs whose first job neither waits nor runs on their queue. One exchange per thousand runs."""
        places = [JobAddress(self._queue_of(run), run_job_id(run.run_id, 0)) for run in runs]
        records = self.jobs.records(places)
        return [run for run, record in zip(runs, records, strict=True) if record is None or record.is_finished]

    def terminate(self, run_id: str) -> bool:
        """Stop a run and its steps, and wait up to 20 s until they have ended.

        A run that no worker has taken is cancelled immediately. This also stops the steps itself, because the run's
        process may be gone. A step that was killed gets its end here, before the run does.

        Returns:
            Whether there was a run to stop.

        Raises:
            TransportError: The server is unreachable; the run is marked, and is cancelled when a worker takes it.
        """
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        # First: a run that is interrupted without this ends as failed (decision 0011).
        if run.status is not dg.DagsterRunStatus.CANCELING:
            self._instance.report_run_canceling(run)
        if not self._stop(run, self.find_job(run)):
            self._instance.report_engine_event(
                f"The run was asked to stop, but did not end within {_STOP_S:.0f} s.", run, cls=type(self)
            )
        elif not self._is_finished(run_id):
            self._end_as_canceled(run)
        return True

    def _end_as_canceled(self, run: dg.DagsterRun) -> None:
        """End a run whose job has ended; its worker may have died after the event, before it set the status."""
        reports = self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.PIPELINE_CANCELED)
        if reports and (event := reports[-1].dagster_event) is not None:
            self._instance.run_storage.handle_run_event(run.run_id, event)
        else:
            self._instance.report_run_canceled(run)

    def _stop(self, run: dg.DagsterRun, *places: JobAddress) -> bool:
        """Stop jobs of a run and its steps, and free the run's slots of pools; return whether all jobs have ended."""
        ends_at = time.monotonic() + _STOP_S
        has_ended = self.jobs.stop([*places, *find_step_jobs(self._instance, run.run_id)], _STOP_S)
        if has_ended and places:  # the run may have started more steps before it stopped
            has_ended = self.jobs.stop(find_step_jobs(self._instance, run.run_id), ends_at - time.monotonic())
        if has_ended:
            if not self._is_finished(run.run_id):
                report_ends(self._instance, run)
            if self._instance.event_log_storage.supports_global_concurrency_limits:
                self._instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        return has_ended

    def _is_finished(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        return run is None or run.is_finished

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: the queue knows whether a worker executes a run."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Return whether a worker executes the run, or will. If not, and the run is not resumed, stop its steps.

        Raises:
            TransportError: The server is unreachable, so the state is unknown.
        """
        place = self.find_job(run)
        record = self.jobs.record(place)
        status, message = self.jobs.health(place, record)
        if status is WorkerStatus.SUCCESS and not self._is_finished(run.run_id):
            status, message = WorkerStatus.FAILED, f"{message}, but Dagster's log has no end of the run"
        is_overdue = record is not None and record.failed_reason == OVERTIME
        if status not in (WorkerStatus.RUNNING, WorkerStatus.SUCCESS) and (
            is_overdue or not self._instance.run_will_resume(run.run_id)
        ):
            self._stop(run)
        if record is not None and is_overdue and not self._is_finished(run.run_id):
            # Resuming the run would exceed the limit further.
            self._fail_overdue(run, record.options.get("timeout", 0) / 1000)
        return CheckRunHealthResult(status, message, run_worker_id=place.job_id)

    def get_run_worker_debug_info(
        self,
        run: dg.DagsterRun,
        include_container_logs: bool | None = True,  # noqa: ARG002  Dagster's
    ) -> str | None:
        """Describe the run's job: its state, its times, its last log lines, and which workers could take it."""
        return self.jobs.describe(self.find_job(run))


def _origin(run: dg.DagsterRun) -> Any:
    """Return the origin of the run's code.

    Raises:
        UsageError: The run has none.
    """
    if run.job_code_origin is None:
        raise UsageError(
            f"Run {run.run_id!r} has no code origin, so no worker can load its code; create it from a job of a code "
            "location."
        )
    return run.job_code_origin
