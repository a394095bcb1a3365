"""Metrics of workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.telemetry.names import metric
from orchestration_queue.telemetry.prometheus import LabelValues, counter, histogram
from orchestration_queue.worker import Worker, WorkerEvent, WorkerEventType

__all__ = ["WorkerMetrics"]

_OUTCOMES = {
    WorkerEventType.COMPLETED: "completed",
    WorkerEventType.FAILED: "failed",
    WorkerEventType.LOST: "lost",
    WorkerEventType.INTERRUPTED: "interrupted",
}


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
