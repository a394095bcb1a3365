"""Metrics of this process: its workers, and their calls of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server.instrumentation import exchange_hooks
from orchestration_queue.telemetry.names import Metric, metric
from orchestration_queue.worker import Worker, WorkerEvent, WorkerEventType

__all__ = ["CallMetrics", "LabelValues", "WorkerMetrics", "counter", "histogram"]

_MOST_VALUES = 200
_SEVERAL = "pipeline"
_OUTCOMES = {
    WorkerEventType.COMPLETED: "completed",
    WorkerEventType.FAILED: "failed",
    WorkerEventType.LOST: "lost",
    WorkerEventType.INTERRUPTED: "interrupted",
}


class LabelValues:
    """Limits the values of a label that clients choose: after 200, all others are ``other``."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the label's value."""
        if value not in self._seen:
            if len(self._seen) >= _MOST_VALUES:
                return "other"
            self._seen.add(value)
        return value


def counter(made: Metric, registry: CollectorRegistry) -> Counter:
    """Return a counter as described."""
    return Counter(made.name, made.what, made.labels, registry=registry)


def histogram(made: Metric, registry: CollectorRegistry) -> Histogram:
    """Return a histogram as described."""
    return Histogram(made.name, made.what, made.labels, registry=registry, buckets=made.buckets)


class CallMetrics:
    """Measures the calls of all connections of this process, of clients and workers, during the block.

    Args:
        registry: The registry of the metrics.

    Examples:
        >>> from prometheus_client import REGISTRY
        >>> with CallMetrics(REGISTRY), Queue("orders") as queue:  # doctest: +SKIP
        ...     queue.add("order")
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = histogram(metric("server_call_duration_seconds"), registry)
        self._errors = counter(metric("server_call_errors_total"), registry)

    def __enter__(self) -> Self:
        exchange_hooks.append(self._count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        exchange_hooks.remove(self._count)

    def _count(self, calls: Sequence[Call], took_s: float, failed: Sequence[tuple[str, str]]) -> None:
        for name, code in failed:
            self._errors.labels(name, code).inc()
        # Arguments of a function may be any text, this word included.
        if not any("BLOCK" in call.args and not call.is_function for call in calls):
            names = {call.name for call in calls}
            self._seconds.labels(names.pop() if len(names) == 1 else _SEVERAL).observe(took_s)


class WorkerMetrics:
    """Counts the activity of this process's workers.

    Args:
        registry: The registry of the metrics; default: a new one.

    Examples:
        >>> metrics = WorkerMetrics()
        >>> metrics.watch(worker)  # doctest: +SKIP
        >>> with TelemetryServer(metrics.registry):  # doctest: +SKIP
        ...     asyncio.run(worker.run())
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._started = counter(metric("jobs_started_total"), self.registry)
        self._finished = counter(metric("jobs_finished_total"), self.registry)
        self._seconds = histogram(metric("job_duration_seconds"), self.registry)
        self._wait_seconds = histogram(metric("job_wait_seconds"), self.registry)
        self._redeliveries = counter(metric("redeliveries_total"), self.registry)
        self._letters = counter(metric("dead_letters_total"), self.registry)
        self._errors = counter(metric("errors_total"), self.registry)
        self._tasks = LabelValues()
        self._began: dict[int, float] = {}
        self.workers: list[Worker] = []
        self.registry.register(_Present(self.workers))

    def watch(self, worker: Worker) -> None:
        """Count this worker's activity from now on."""
        self.workers.append(worker)
        self._errors.labels(worker.keys.queue)  # shown as 0 until there is one
        worker.subscribe(lambda event: self._heard(worker, event))

    def _heard(self, worker: Worker, event: WorkerEvent) -> None:
        queue = worker.keys.queue
        if event.type is WorkerEventType.ERROR:
            self._errors.labels(queue).inc()
        elif event.job is None:
            return
        elif event.type is WorkerEventType.ACTIVE:
            self._start(queue, event.job)
        elif outcome := _OUTCOMES.get(event.type):
            self._end(queue, event.job, "retried" if event.will_retry else outcome)
            if outcome == "failed" and not event.will_retry and worker.io.defaults.dead_letter_queue:
                self._letters.labels(queue, self._tasks(event.job.name)).inc()

    def _start(self, queue: str, job: JobRecord) -> None:
        self._began[id(job)] = time.perf_counter()
        self._started.labels(queue, self._tasks(job.name)).inc()
        if job.stalled_count:
            self._redeliveries.labels(queue, self._tasks(job.name)).inc()
        elif not job.attempts_made and job.started_at and job.added_at:
            due_after = float(job.fields.get("delay") or 0) / 1000
            waited = (job.started_at - job.added_at).total_seconds() - due_after
            self._wait_seconds.labels(queue, self._tasks(job.name)).observe(max(0.0, waited))

    def _end(self, queue: str, job: JobRecord, outcome: str) -> None:
        self._finished.labels(queue, self._tasks(job.name), outcome).inc()
        began = self._began.pop(id(job), None)
        if began is not None:
            self._seconds.labels(queue, self._tasks(job.name)).observe(time.perf_counter() - began)


class _Present(Collector):
    """Values that are read from the workers at each scrape."""

    def __init__(self, workers: list[Worker]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Any]:
        """Yield the current values."""
        running, renewals = metric("jobs_running"), metric("lease_renewals_total")
        now = GaugeMetricFamily(running.name, running.what, labels=running.labels)
        renewed = CounterMetricFamily(renewals.name, renewals.what, labels=renewals.labels)
        for worker in self._workers:
            now.add_metric([worker.keys.queue], worker.running)
            renewed.add_metric([worker.keys.queue], worker.leases_renewed)
        yield now
        yield renewed
