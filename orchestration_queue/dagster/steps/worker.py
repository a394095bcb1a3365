"""The worker for Dagster's steps and runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from orchestration_queue.dagster.checks import check_items, checked
from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.step_runner import StepRunner
from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options import WorkerOptions, as_timedelta
from orchestration_queue.options.durations import Duration, check_duration
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import ServerUrl, parse_url
from orchestration_queue.worker.forks.fork_pool import Recycling
from orchestration_queue.worker.forks.fork_worker import ForkWorker

__all__ = ["DagsterWorker"]

_NO_RECYCLING = Recycling()


class DagsterWorker(ForkWorker):
    """Runs the steps and runs that Dagster's executors and launchers add to one queue.

    Each work item runs in a separate process, forked within milliseconds from one that has the user's code loaded. In
    all other respects it is a :class:`Worker`: leases, heartbeats, draining, priorities.

    If the lease of a work item is lost, its process is killed before another worker can take the job, and its events no
    longer reach Dagster. A step that was taken over from a lost worker is not repeated: its job fails, and the executor
    starts Dagster's next attempt.

    Args:
        queue: The queue's name.
        locations: The code locations that this worker serves.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        options: Concurrency, lease, intervals and limits.
        prefix: First part of every key.
        recycling: When to replace fork servers and resident processes; default: never.
        grace: How long a work item may clean up after it was cancelled or timed out, before it is killed.
        code_version: The version of this worker's code. Work items that require another one are put back.
        first_sign: How long a forked work item may take to write its first event to Dagster's log. One that takes
            longer is killed and runs once more in a new process.

    Raises:
        UsageError: There is no code location, or two have the same name.
    """

    def __init__(
        self,
        queue: str,
        locations: Sequence[CodeLocation],
        *,
        url: str | ServerUrl | None = None,
        options: WorkerOptions | None = None,
        prefix: str = DEFAULT_PREFIX,
        recycling: Recycling = _NO_RECYCLING,
        grace: Duration = timedelta(seconds=10),
        code_version: str = "",
        first_sign: Duration = timedelta(seconds=60),
    ) -> None:
        names = [location.name for location in check_items(locations, CodeLocation, "locations")]
        checked(code_version, str, "code_version", optional=False)
        if check_duration(first_sign, "first_sign") <= timedelta(0):
            raise InvalidOptionError(f"`first_sign` must be > 0 s, got {first_sign!r}; pass `first_sign=60`.")
        if isinstance(url, str):
            parse_url(url)
        if not names or len(set(names)) < len(names):
            raise UsageError(
                f"A Dagster worker requires one or more code locations with different names, got {names}; pass `name=`."
            )
        options = WorkerOptions.coerce(options, "options")
        if code_version and not options.code_version:
            options = options.model_copy(update={"code_version": code_version})
        runner = StepRunner(
            locations,
            options.concurrency,
            lease=as_timedelta(options.lease),
            now_ms=lambda: self.io.clock.now_ms(),
            revoked=self._stop_revoked,
            recycling=recycling,
            grace=check_duration(grace, "grace"),
            code_version=code_version,
            first_sign=check_duration(first_sign, "first_sign"),
        )
        super().__init__(queue, runner, url=url, options=options, prefix=prefix)
