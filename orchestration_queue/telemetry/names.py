"""All metrics by name, from which the endpoint, the reference page and the dashboard are built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FAST_AND_SLOW_S", "METRICS", "OF_JOB", "Metric", "metric"]

FAST_AND_SLOW_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


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
        FAST_AND_SLOW_S,
    ),
    Metric(
        "orchestration_queue_job_wait_seconds",
        "histogram",
        "Time from when a job was added, or due if that is later, to the start of its first attempt.",
        ("queue", "task"),
        FAST_AND_SLOW_S,
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
        FAST_AND_SLOW_S,
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

OF_JOB = ("queue", "name")


def metric(name: str) -> Metric:
    """Return the metric with this name, without the common prefix."""
    return next(metric for metric in METRICS if metric.name == f"orchestration_queue_{name}")
