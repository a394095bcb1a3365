"""``oq chasqui worker --metrics-port 9464`` serves these, under the names of ChasquiMQ's own engine."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from orchestration_queue.telemetry.metrics import LabelValues, counter, histogram
from orchestration_queue.telemetry.names import FAST_AND_SLOW_S, OF_JOB, Metric
from orchestration_queue.wires.chasquimq import ChasquiObserver

__all__ = ["METRICS", "ChasquiMetrics"]

METRICS = (
    Metric("chasquimq_jobs_completed_total", "counter", "Attempts whose handler returned.", OF_JOB),
    Metric("chasquimq_jobs_failed_total", "counter", "Attempts whose handler raised.", (*OF_JOB, "kind")),
    Metric("chasquimq_handler_duration_seconds", "histogram", "How long handlers ran.", OF_JOB, FAST_AND_SLOW_S),
    Metric("chasquimq_retries_scheduled_total", "counter", "Jobs put back for another attempt.", OF_JOB),
    Metric("chasquimq_retry_backoff_seconds", "histogram", "Pauses before a retry.", OF_JOB, FAST_AND_SLOW_S),
    Metric("chasquimq_dlq_routed_total", "counter", "Jobs moved to the dead-letter queue.", (*OF_JOB, "reason")),
    Metric(
        "chasquimq_consumer_batch_size",
        "histogram",
        "Entries of reads that were not empty.",
        buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500),
    ),
    Metric("chasquimq_consumer_reclaimed_total", "counter", "Entries taken over from workers that lost them."),
    Metric("chasquimq_promoter_promoted_total", "counter", "Delayed jobs made ready by this worker."),
    Metric("chasquimq_delayed_zset_depth", "gauge", "Jobs that wait for their time, as the promoter saw last."),
    Metric("chasquimq_promoter_lock_acquired_total", "counter", "How often this worker became the promoter."),
    Metric("chasquimq_promoter_lock_lost_total", "counter", "How often another worker became it instead."),
)
"""Metrics of workers of ChasquiMQ's queues, with the original engine's names."""

_METRICS = {metric.name.removeprefix("chasquimq_"): metric for metric in METRICS}


class ChasquiMetrics(ChasquiObserver):
    """Counts one worker's activity; pass it as the worker's ``observer``.

    Args:
        queue: The queue's name, a label of all metrics.
        registry: The registry of the metrics; default: a new one.

    Examples:
        >>> metrics = ChasquiMetrics("mail")
        >>> worker = ChasquiWorker("mail", handler, observer=metrics)  # doctest: +SKIP
        >>> with TelemetryServer(metrics.registry):  # doctest: +SKIP
        ...     asyncio.run(worker.run())
    """

    def __init__(self, queue: str, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._queue = queue
        self._names = LabelValues()
        counters = [metric for metric in _METRICS.values() if metric.kind == "counter"]
        histograms = [metric for metric in _METRICS.values() if metric.kind == "histogram"]
        self._counters = {metric.name.removeprefix("chasquimq_"): counter(metric, self.registry) for metric in counters}
        self._histograms = {
            metric.name.removeprefix("chasquimq_"): histogram(metric, self.registry) for metric in histograms
        }
        depth = _METRICS["delayed_zset_depth"]
        self._depth = Gauge(depth.name, depth.what, depth.labels, registry=self.registry)

    def read(self, entries: int, reclaimed: int) -> None:
        """Count a read that was not empty."""
        if entries:
            self._histograms["consumer_batch_size"].labels(self._queue).observe(entries)
            self._counters["consumer_reclaimed_total"].labels(self._queue).inc(reclaimed)

    def completed(self, name: str, seconds: float) -> None:
        """Count a success and its duration."""
        self._count_end("jobs_completed_total", name, seconds)

    def failed(self, name: str, seconds: float) -> None:
        """Count a failed attempt and its duration."""
        self._count_end("jobs_failed_total", name, seconds, "error")

    def _count_end(self, outcome: str, name: str, seconds: float, *kind: str) -> None:
        labels = self._queue, self._names(name)
        self._counters[outcome].labels(*labels, *kind).inc()
        self._histograms["handler_duration_seconds"].labels(*labels).observe(seconds)

    def retried(self, name: str, pause_s: float) -> None:
        """Count a retry and its pause."""
        labels = self._queue, self._names(name)
        self._counters["retries_scheduled_total"].labels(*labels).inc()
        self._histograms["retry_backoff_seconds"].labels(*labels).observe(pause_s)

    def buried(self, name: str, reason: str) -> None:
        """Count a dead letter."""
        self._counters["dlq_routed_total"].labels(self._queue, self._names(name), reason).inc()

    def promoted(self, jobs: int, delayed: int) -> None:
        """Count promoted jobs, and record how many are left."""
        self._counters["promoter_promoted_total"].labels(self._queue).inc(jobs)
        self._depth.labels(self._queue).set(delayed)

    def led(self, leads: bool) -> None:
        """Count a change of the promoter's lock."""
        self._counters[f"promoter_lock_{'acquired' if leads else 'lost'}_total"].labels(self._queue).inc()
