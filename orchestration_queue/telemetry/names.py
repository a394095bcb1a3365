"""Every metric by name: what the endpoint shows, the reference page lists and the dashboard draws comes from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "Metric", "metric"]

_FAST_AND_SLOW_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: As Prometheus shows it, a counter's ``_total`` included.
        kind: Of which of Prometheus's kinds.
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
        "Attempts that ended: completed, failed for good, retried, interrupted (goes on later), or lost to another "
        "worker.",
        ("queue", "task", "outcome"),
    ),
    Metric(
        "orchestration_queue_job_duration_seconds",
        "histogram",
        "From the start of an attempt until the server knew its outcome.",
        ("queue", "task"),
        _FAST_AND_SLOW_S,
    ),
    Metric(
        "orchestration_queue_job_wait_seconds",
        "histogram",
        "From when a job was added, or was due if that is later, to the start of its first attempt.",
        ("queue", "task"),
        _FAST_AND_SLOW_S,
    ),
    Metric(
        "orchestration_queue_redeliveries_total",
        "counter",
        "Attempts that began because another worker had been lost with the job.",
        ("queue", "task"),
    ),
    Metric(
        "orchestration_queue_dead_letters_total",
        "counter",
        "Jobs that failed for good and left a letter in the dead-letter queue.",
        ("queue", "task"),
    ),
    Metric("orchestration_queue_jobs_running", "gauge", "Jobs that run on this worker now."),
    Metric("orchestration_queue_lease_renewals_total", "counter", "Leases of running jobs that were renewed."),
    Metric(
        "orchestration_queue_errors_total",
        "counter",
        "Calls of this worker that failed, and were made again: the server could not be reached, or refused.",
    ),
    Metric(
        "orchestration_queue_server_call_duration_seconds",
        "histogram",
        "From sending a call of this process, or several in one trip (pipeline), to the answer; waits for jobs and "
        "events are left out.",
        ("call",),
        _FAST_AND_SLOW_S,
    ),
    Metric(
        "orchestration_queue_server_call_errors_total",
        "counter",
        "Calls of this process that failed, by the code of the server's refusal; or unreachable: it was not sent; or "
        "interrupted: nobody knows whether it was carried out.",
        ("call", "code"),
    ),
    Metric("orchestration_queue_depth", "gauge", "Jobs in each state.", ("queue", "state")),
    Metric(
        "orchestration_queue_oldest_ready_age_seconds",
        "gauge",
        "How long the job has been ready that waits longest; 0 without one. Prioritized and LIFO jobs are left out.",
    ),
    Metric("orchestration_queue_paused", "gauge", "1 while the queue is paused."),
    Metric("orchestration_queue_workers", "gauge", "Workers that are registered with the queue and alive."),
    Metric(
        "orchestration_queue_server_up",
        "gauge",
        "Whether the server answered when the queue's own figures were read for this page.",
    ),
)


def metric(name: str) -> Metric:
    """The metric of this name, without the common first part."""
    return next(metric for metric in METRICS if metric.name == f"orchestration_queue_{name}")
