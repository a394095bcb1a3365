"""What qless's workers and queues tell Prometheus."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry

from orchestration_queue.errors import UnrecoverableError, UsageError
from orchestration_queue.wires.qless import (
    QlessClient,
    QlessJob,
    QlessNext,
    QlessWorker,
    QlessWorkerOptions,
)
from orchestration_queue.wires.qless.metrics import METRICS, QlessCollector, QlessMetrics
from tests.declared_metrics import check_registry
from tests.waiting import wait_until

OPTIONS = QlessWorkerOptions(interval=0.05, retry_delay=timedelta(0))


def value(registry: CollectorRegistry, metric: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"qless_{metric}", labels)


async def handle(job: QlessJob) -> QlessNext | None:
    """Succeed, move on, fail once, fail for good, or never end, as the job's class says."""
    if job.klass == "bad":
        raise UnrecoverableError("never")
    if job.klass == "flaky" and job.remaining == job.retries:
        raise RuntimeError("once")
    if job.klass == "slow":
        await asyncio.Event().wait()
    return QlessNext("next") if job.klass == "moves" else None


async def test_a_worker_counts_what_becomes_of_its_jobs(server: redis.Redis, server_url: str) -> None:
    metrics = QlessMetrics()
    with QlessClient(url=server_url) as client:
        for klass in ("good", "good", "bad", "flaky", "moves", "slow"):
            client.put("q", klass, jid="slow" if klass == "slow" else None)
        worker = QlessWorker("q", handle, url=server_url, options=OPTIONS, observer=metrics)
        running = asyncio.ensure_future(worker.run())
        try:
            await wait_until(lambda: client.length("q") == 1 and client.length("next") == 1, "all but one to end")
            await asyncio.to_thread(client.cancel, "slow")
            await wait_until(lambda: value(metrics.registry, "jobs_lost_total", queue="q", name="slow"), "its loss")
        finally:
            worker.stop()
            await asyncio.wait_for(running, 60)
    ended = {
        ("completed", "good"): 2,
        ("completed", "flaky"): 1,
        ("retried", "flaky"): 1,
        ("failed", "bad"): 1,
        ("advanced", "moves"): 1,
    }
    for (outcome, name), times in ended.items():
        assert value(metrics.registry, f"jobs_{outcome}_total", queue="q", name=name) == times
    assert value(metrics.registry, "jobs_taken_total", queue="q") == 7
    assert value(metrics.registry, "handler_duration_seconds_count", queue="q", name="flaky") == 2
    check_registry(metrics.registry, [metric for metric in METRICS if metric.kind != "gauge"])


def test_queues_are_read_at_each_scrape(server: redis.Redis, server_url: str) -> None:
    registry = CollectorRegistry()
    with QlessClient(url=server_url, worker="me") as client:
        QlessCollector(client, registry)
        client.put("q", "K", jid="a")
        check_registry(registry, [metric for metric in METRICS if metric.kind == "gauge"])
        client.put("q", "K", delay=60)
        (job,) = client.pop("q")
        assert value(registry, "queue_jobs", queue="q", state="running") == 1
        client.fail(job, "broken", "no disk")
        client.pause("q")
        assert value(registry, "queue_jobs", queue="q", state="running") == 0
        assert value(registry, "queue_jobs", queue="q", state="scheduled") == 1
        assert value(registry, "queue_paused", queue="q") == 1
        assert value(registry, "failed_jobs", group="broken") == 1
        assert (value(registry, "workers"), value(registry, "server_up")) == (1, 1)
    assert value(registry, "server_up") == 0, "the client is closed"


def test_an_observer_that_is_none_is_refused() -> None:
    observer: Any = CollectorRegistry()
    with pytest.raises(UsageError, match="observer"):
        QlessWorker("q", handle, observer=observer)
