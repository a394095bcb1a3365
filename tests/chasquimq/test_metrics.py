"""What ChasquiMQ's workers tell Prometheus."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from orchestration_queue.errors import UnrecoverableError, UsageError
from orchestration_queue.telemetry.metrics import LabelValues
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, ChasquiJob, ChasquiWorker, NewChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.metrics import METRICS, ChasquiMetrics
from tests.chasquimq.working import is_settled, working
from tests.declared_metrics import check_registry
from tests.waiting import wait_until


async def handle(job: ChasquiJob) -> None:
    """Succeed, fail once, or fail for good, as the job's name says."""
    if job.name == "bad":
        raise UnrecoverableError("never")
    if job.name == "flaky" and job.attempt == 0:
        raise RuntimeError("once")


async def test_a_workers_metrics_have_the_engines_names(
    queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    await queue.add_bulk([NewChasquiJob(name, backoff=0.01) for name in ("good", "good", "flaky", "bad")])
    await queue.add("good", delay=0.05)
    metrics = ChasquiMetrics(queue.name)
    async with working(queue.name, handle, server_url, observer=metrics):
        await wait_until(lambda: is_settled(server, keys), "all jobs to end")

    def value(metric: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"chasquimq_{metric}", {"queue": queue.name, **labels})

    assert value("jobs_completed_total", name="good") == 3
    assert value("jobs_completed_total", name="flaky") == 1
    assert value("jobs_failed_total", name="flaky", kind="error") == 1
    assert value("handler_duration_seconds_count", name="flaky") == 2
    assert value("retries_scheduled_total", name="flaky") == 1
    assert value("retry_backoff_seconds_count", name="flaky") == 1
    assert value("dlq_routed_total", name="bad", reason="unrecoverable") == 1
    assert value("promoter_promoted_total") == 2
    assert value("delayed_zset_depth") == 0
    assert value("promoter_lock_acquired_total") == 1
    assert value("consumer_batch_size_sum") == 6
    assert value("consumer_reclaimed_total") == 0
    check_registry(metrics.registry, METRICS)


def test_names_that_clients_make_up_share_a_label() -> None:
    values = LabelValues()
    assert {values(f"task {number}") for number in range(1_000)} == {*(f"task {n}" for n in range(200)), "other"}
    assert values("task 7") == "task 7"


def test_an_observer_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="observer"):
        ChasquiWorker("q", handle, observer=CollectorRegistry())  # type: ignore[arg-type]
