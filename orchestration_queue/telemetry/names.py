"""All metrics by name, from which the endpoint, the reference page and the dashboard are built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CHASQUIMQ_METRICS", "METRICS", "QLESS_METRICS", "Metric", "metric"]

_FAST_AND_SLOW_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name in Prometheus, including a counter's ``_total``.
        kind: Its type in Prometheus.
        what: One sentence for the operator.
        labels: Its labels.
        buckets: A histogram's upper bounds, in seconds.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    what: str
    labels: tuple[str, ...] = ("queue",)
    buckets: tuple[float, ...] = ()


METRICS = (
    Metric("orchestration_queue_jobs_started_total", "counter", "Attempts that began.", ("queue", "task")),
    Metric(
        "orchestration_queue_jobs_finished_total",
        "counter",
        "Attempts that ended: completed, failed for good, retried, interrupted (runs again later), or lost to another "
        "worker.",
        ("queue", "task", "outcome"),
    ),
    Metric(
        "orchestration_queue_job_duration_seconds",
        "histogram",
        "Time from the start of an attempt until the server has its outcome.",
        ("queue", "task"),
        _FAST_AND_SLOW_S,
    ),
    Metric(
        "orchestration_queue_job_wait_seconds",
        "histogram",
        "Time from when a job was added, or due if that is later, to the start of its first attempt.",
        ("queue", "task"),
        _FAST_AND_SLOW_S,
    ),
    Metric(
        "orchestration_queue_redeliveries_total",
        "counter",
        "Attempts that began because a previous worker lost its lease of the job.",
        ("queue", "task"),
    ),
    Metric(
        "orchestration_queue_dead_letters_total",
        "counter",
        "Jobs that failed for good and left a dead letter.",
        ("queue", "task"),
    ),
    Metric("orchestration_queue_jobs_running", "gauge", "Jobs that run on this worker now."),
    Metric("orchestration_queue_lease_renewals_total", "counter", "Leases of running jobs that were renewed."),
    Metric(
        "orchestration_queue_errors_total",
        "counter",
        "Calls of this worker that failed and were retried: the server was unreachable, or refused them.",
    ),
    Metric(
        "orchestration_queue_server_call_duration_seconds",
        "histogram",
        "Time from sending a call of this process, or several in one exchange, to the reply; waits for jobs and "
        "events are excluded.",
        ("call",),
        _FAST_AND_SLOW_S,
    ),
    Metric(
        "orchestration_queue_server_call_errors_total",
        "counter",
        "Calls of this process that failed, by the server's error code; unreachable if the call was not sent, "
        "interrupted if it is unknown whether the server ran it.",
        ("call", "code"),
    ),
    Metric("orchestration_queue_depth", "gauge", "Jobs in each state.", ("queue", "state")),
    Metric(
        "orchestration_queue_oldest_ready_age_seconds",
        "gauge",
        "How long the oldest ready job has been ready; 0 without one. Prioritized and LIFO jobs are excluded.",
    ),
    Metric("orchestration_queue_paused", "gauge", "1 while the queue is paused."),
    Metric("orchestration_queue_workers", "gauge", "Workers that are registered with the queue and alive."),
    Metric("orchestration_queue_pool_slots", "gauge", "Slots that a pool has.", ("pool",)),
    Metric("orchestration_queue_pool_slots_used", "gauge", "Slots of a pool that running jobs hold.", ("pool",)),
    Metric("orchestration_queue_pool_jobs_waiting", "gauge", "Jobs that wait for slots of a pool.", ("pool",)),
    Metric(
        "orchestration_queue_share_jobs_waiting",
        "gauge",
        "Jobs that wait in a share, for the 50 shares of a queue with the most jobs.",
        ("queue", "share"),
    ),
    Metric(
        "orchestration_queue_server_up",
        "gauge",
        "Whether the server answered when the queue's values were read for this scrape.",
    ),
)

_JOB = ("queue", "name")
CHASQUIMQ_METRICS = (
    Metric("chasquimq_jobs_completed_total", "counter", "Attempts whose handler returned.", _JOB),
    Metric("chasquimq_jobs_failed_total", "counter", "Attempts whose handler raised.", (*_JOB, "kind")),
    Metric("chasquimq_handler_duration_seconds", "histogram", "How long handlers ran.", _JOB, _FAST_AND_SLOW_S),
    Metric("chasquimq_retries_scheduled_total", "counter", "Jobs put back for another attempt.", _JOB),
    Metric("chasquimq_retry_backoff_seconds", "histogram", "Pauses before a retry.", _JOB, _FAST_AND_SLOW_S),
    Metric("chasquimq_dlq_routed_total", "counter", "Jobs moved to the dead-letter queue.", (*_JOB, "reason")),
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

QLESS_METRICS = (
    Metric("qless_jobs_taken_total", "counter", "Jobs that this worker took."),
    Metric("qless_jobs_completed_total", "counter", "Jobs whose handler returned.", _JOB),
    Metric("qless_jobs_advanced_total", "counter", "Jobs whose handler moved them on to another queue.", _JOB),
    Metric("qless_jobs_failed_total", "counter", "Jobs whose handler raised, and that failed.", _JOB),
    Metric("qless_jobs_retried_total", "counter", "Jobs whose handler raised, and that run again.", _JOB),
    Metric("qless_jobs_lost_total", "counter", "Jobs that another process took from this worker while they ran.", _JOB),
    Metric("qless_handler_duration_seconds", "histogram", "How long handlers ran.", _JOB, _FAST_AND_SLOW_S),
    Metric("qless_queue_jobs", "gauge", "Jobs in each state, read at each scrape.", ("queue", "state")),
    Metric("qless_queue_paused", "gauge", "1 while the queue is paused."),
    Metric("qless_failed_jobs", "gauge", "Failed jobs of each group, 200 groups at most.", ("group",)),
    Metric("qless_workers", "gauge", "Workers seen within a day.", ()),
    Metric("qless_server_up", "gauge", "Whether the server answered when the figures above were read.", ()),
)
"""Metrics of workers of qless's queues, and of the queues."""


def metric(name: str) -> Metric:
    """Return the metric with this name, without the common prefix."""
    return next(metric for metric in METRICS if metric.name == f"orchestration_queue_{name}")
