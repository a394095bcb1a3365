"""``oq qless worker --metrics-port 9464`` serves counters and the histogram, with ``--queue-metrics`` the gauges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.telemetry.metrics import LabelValues, counter, histogram
from orchestration_queue.telemetry.names import FAST_AND_SLOW_S, OF_JOB, Metric
from orchestration_queue.wires.qless import QlessClient, QlessJob, QlessObserver
from orchestration_queue.wires.qless.options import Outcome

__all__ = ["METRICS", "QlessCollector", "QlessMetrics"]

METRICS = (
    Metric("qless_jobs_taken_total", "counter", "Jobs that this worker took."),
    Metric("qless_jobs_completed_total", "counter", "Jobs whose handler returned.", OF_JOB),
    Metric("qless_jobs_advanced_total", "counter", "Jobs whose handler moved them on to another queue.", OF_JOB),
    Metric("qless_jobs_failed_total", "counter", "Jobs whose handler raised, and that failed.", OF_JOB),
    Metric("qless_jobs_retried_total", "counter", "Jobs whose handler raised, and that run again.", OF_JOB),
    Metric(
        "qless_jobs_lost_total", "counter", "Jobs that another process took from this worker while they ran.", OF_JOB
    ),
    Metric("qless_handler_duration_seconds", "histogram", "How long handlers ran.", OF_JOB, FAST_AND_SLOW_S),
    Metric("qless_queue_jobs", "gauge", "Jobs in each state, read at each scrape.", ("queue", "state")),
    Metric("qless_queue_paused", "gauge", "1 while the queue is paused."),
    Metric("qless_failed_jobs", "gauge", "Failed jobs of each group, 200 groups at most.", ("group",)),
    Metric("qless_workers", "gauge", "Workers seen within a day.", ()),
    Metric("qless_server_up", "gauge", "Whether the server answered when the figures above were read.", ()),
)
"""Metrics of workers of qless's queues, and of the queues."""

_MOST_GROUPS = 200
_STATES = ("waiting", "running", "stalled", "scheduled", "depends", "recurring")
_GAUGES = [metric for metric in METRICS if metric.kind == "gauge"]


class QlessMetrics(QlessObserver):
    """Counts one worker's activity; pass it as the worker's ``observer``.

    Args:
        registry: The registry of the metrics; default: a new one.

    Examples:
        >>> metrics = QlessMetrics()
        >>> worker = QlessWorker("mail", handler, observer=metrics)  # doctest: +SKIP
        >>> with TelemetryServer(metrics.registry):  # doctest: +SKIP
        ...     asyncio.run(worker.run())
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._names = LabelValues()
        self._counters = {
            metric.name.removeprefix("qless_jobs_").removesuffix("_total"): counter(metric, self.registry)
            for metric in METRICS
            if metric.kind == "counter"
        }
        (duration,) = [metric for metric in METRICS if metric.kind == "histogram"]
        self._duration = histogram(duration, self.registry)

    def taken(self, queue: str, jobs: int) -> None:
        """Count the jobs that were taken."""
        self._counters["taken"].labels(queue).inc(jobs)

    def ended(self, job: QlessJob, outcome: Outcome, seconds: float) -> None:
        """Count an outcome and its duration."""
        labels = job.queue, self._names(job.klass)
        self._counters[outcome].labels(*labels).inc()
        self._duration.labels(*labels).observe(seconds)

    def lost(self, job: QlessJob) -> None:
        """Count a job that was taken away."""
        self._counters["lost"].labels(job.queue, self._names(job.klass)).inc()


class QlessCollector(Collector):
    """Exports the sizes of all qless queues of a server. Use it in one process: all processes would export the same.

    Each scrape takes three commands.

    Args:
        client: A client of the server.
        registry: The registry of the metrics.
    """

    def __init__(self, client: QlessClient, registry: CollectorRegistry) -> None:
        self._client = client
        registry.register(self)

    def describe(self) -> Iterator[Any]:
        """Read nothing before the first scrape."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """Return the current values; if the server does not answer, only that."""
        families = {
            metric.name.removeprefix("qless_"): GaugeMetricFamily(metric.name, metric.what, labels=metric.labels)
            for metric in _GAUGES
        }
        try:
            self._read(families)
        except OrchestrationQueueError:
            families["server_up"].add_metric([], 0)
        else:
            families["server_up"].add_metric([], 1)
        yield from families.values()

    def _read(self, families: dict[str, GaugeMetricFamily]) -> None:
        queues, workers, groups = self._client.queues(), self._client.workers(), self._client.failures()
        for counts in queues:
            families["queue_paused"].add_metric([counts.name], counts.paused)
            for state in _STATES:
                families["queue_jobs"].add_metric([counts.name, state], getattr(counts, state))
        families["workers"].add_metric([], len(workers))
        for group, failed in sorted(groups.items())[:_MOST_GROUPS]:
            families["failed_jobs"].add_metric([group], failed)
