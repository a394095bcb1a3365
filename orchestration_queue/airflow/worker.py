"""The worker for Airflow's tasks."""

from __future__ import annotations

from datetime import timedelta

from orchestration_queue.airflow.envelope import queue_of
from orchestration_queue.airflow.workload_runner import WorkloadRunner
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import WorkerOptions, as_timedelta
from orchestration_queue.options.durations import Duration, check_duration
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import ServerUrl, parse_url
from orchestration_queue.worker.forks.fork_pool import Recycling
from orchestration_queue.worker.forks.fork_worker import ForkWorker

__all__ = ["AirflowWorker"]

_NO_RECYCLING = Recycling()


class AirflowWorker(ForkWorker):
    """Runs the tasks, callbacks and connection tests that :class:`QueueExecutor` adds for one of Airflow's queues.

    Each runs in a process of its own, forked within milliseconds from one that has imported Airflow and, from the
    second task of a DAG file on, that file. In all other respects it is a :class:`Worker`.

    A task whose worker was lost is reported as failed to Airflow, which retries it by its rules.

    Args:
        queue: Airflow's queue, such as ``default``.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        options: Concurrency, lease, intervals and limits.
        prefix: First part of every key.
        recycling: When to replace fork servers; default: never.
        grace: How long a task may clean up after it was cancelled or timed out, before it is killed.
        bundles: Maximum versions of DAG bundles that are kept warm.

    Raises:
        UsageError: An argument is invalid.
    """

    def __init__(
        self,
        queue: str = "default",
        *,
        url: str | ServerUrl | None = None,
        options: WorkerOptions | None = None,
        prefix: str = DEFAULT_PREFIX,
        recycling: Recycling = _NO_RECYCLING,
        grace: Duration = timedelta(seconds=10),
        bundles: int = 8,
    ) -> None:
        if isinstance(url, str):
            parse_url(url)
        if isinstance(bundles, bool) or not isinstance(bundles, int) or bundles < 1:
            raise InvalidOptionError(f"`bundles` must be a whole number >= 1, got {bundles!r}; pass `bundles=8`.")
        options = WorkerOptions.coerce(options, "options")
        runner = WorkloadRunner(
            options.concurrency,
            lease=as_timedelta(options.lease),
            now_ms=lambda: self.io.clock.now_ms(),
            revoked=self._stop_revoked,
            recycling=recycling,
            grace=check_duration(grace, "grace"),
            most=bundles,
        )
        super().__init__(queue_of(queue), runner, url=url, options=options, prefix=prefix)
