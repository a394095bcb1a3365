"""Metrics and probes of a worker, as Prometheus and Kubernetes see them."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.errors import ServerError, TransportError, UsageError
from orchestration_queue.options import Backoff, JobOptions, WorkerOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import Connection
from orchestration_queue.server.instrumentation import exchange_hooks
from orchestration_queue.telemetry import METRICS, CallMetrics, QueueCollector, TelemetryServer, WorkerMetrics
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.conftest import start_server
from tests.declared_metrics import check_page
from tests.processes import worker_process
from tests.waiting import wait_until, wait_until_sync


def page(port: int, path: str) -> tuple[int, str]:
    """What the endpoint answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


class Page:
    """A page of metrics, read as Prometheus does."""

    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The one sample with this name, except for the common prefix, and these labels among its own."""
        (found,) = (
            sample.value
            for sample in self.samples
            if sample.name == f"orchestration_queue_{name}" and labels.items() <= sample.labels.items()
        )
        return float(found)


async def test_each_way_in_which_an_attempt_ends_is_counted(server_url: str, queue_name: str) -> None:
    async def handle(job: AsyncActiveJob) -> None:
        if job.name == "bad":
            raise ValueError
        if job.name == "later" and job.data["step"] == "first":
            job.move_to_delayed(timedelta(0), next_step="second")

    metrics = WorkerMetrics()

    def ended() -> float:
        samples = [sample for family in metrics.registry.collect() for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == "orchestration_queue_jobs_finished_total")

    options = WorkerOptions(
        concurrency=4, promotion_interval=timedelta(seconds=0.1), dead_letter_queue=f"{queue_name}-dead"
    )
    worker = Worker(queue_name, handle, url=server_url, options=options)
    metrics.watch(worker)
    with Queue(queue_name, url=server_url) as queue, TelemetryServer(metrics.registry, [worker], port=0) as server:
        assert page(server.port, "/readyz") == (503, f"not ready: {queue_name}\n")
        assert page(server.port, "/livez") == (200, "alive\n")
        for _ in range(3):
            queue.add("good", {})
        queue.add("bad", {}, JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=0.05)))
        queue.add("later", {"step": "first"})
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: ended() == 7, "the worker to receive all ends", 60)
        assert (queue.counts().completed, queue.counts().failed) == (4, 1)
        assert (await asyncio.to_thread(page, server.port, "/readyz"))[0] == 200
        found = Page((await asyncio.to_thread(page, server.port, "/metrics"))[1])
        worker.stop()
        await running
        assert page(server.port, "/readyz")[0] == 503
        assert page(server.port, "/nothing")[0] == 404
    assert found.value("jobs_finished_total", task="good", outcome="completed") == 3
    assert found.value("jobs_finished_total", task="bad", outcome="retried") == 1
    assert found.value("jobs_finished_total", task="bad", outcome="failed") == 1
    assert found.value("jobs_finished_total", task="later", outcome="interrupted") == 1
    assert found.value("jobs_finished_total", task="later", outcome="completed") == 1
    assert found.value("dead_letters_total", task="bad") == 1
    assert found.value("jobs_started_total", task="bad") == 2
    assert found.value("job_duration_seconds_count", task="good") == 3
    assert 0 < found.value("job_duration_seconds_sum", task="good") < 30
    assert found.value("job_wait_seconds_count", task="bad") == 1, "only of the first attempt"
    assert found.value("jobs_running") == 0
    assert found.value("errors_total") == 0


async def test_leases_and_redeliveries_are_counted(server_url: str, queue_name: str, raw: Any) -> None:
    end = asyncio.Event()

    async def handle(_: AsyncActiveJob) -> None:
        await end.wait()

    metrics = WorkerMetrics()
    worker = Worker(queue_name, handle, url=server_url, options=WorkerOptions(lease=timedelta(seconds=1)))
    metrics.watch(worker)
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("long", {})
        raw.hset(f"glide:{{{queue_name}}}:job:{job.id}", "stalledCount", 1)  # as if a worker had been lost with it
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: worker.leases_renewed >= 2, "its lease to be renewed", 30)
        read = metrics.registry.get_sample_value
        assert read("orchestration_queue_redeliveries_total", {"queue": queue_name, "task": "long"}) == 1
        assert (read("orchestration_queue_lease_renewals_total", {"queue": queue_name}) or 0) >= 2
        assert read("orchestration_queue_jobs_running", {"queue": queue_name}) == 1
        end.set()
        worker.stop()
        await running


def test_a_queues_own_figures_are_read_when_asked_for(server_url: str, queue_name: str) -> None:
    registry = CollectorRegistry()
    with Queue(queue_name, url=server_url) as queue:
        QueueCollector([queue], registry)

        def read(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"orchestration_queue_{name}", {"queue": queue_name, **labels})

        assert read("oldest_ready_age_seconds") == 0
        assert queue.oldest_ready() is None
        queue.add("one", {})
        queue.add("two", {}, JobOptions(delay=timedelta(hours=1)))
        queue.pause()
        assert (read("depth", state="waiting"), read("depth", state="delayed")) == (1, 1)
        wait_until_sync(lambda: (read("oldest_ready_age_seconds") or 0) > 0, "the job to age", 30)
        assert (read("paused"), read("workers"), read("server_up")) == (1, 0, 1)
        queue.pools.set(queue_name, 3)
        for figure, value in (("slots", 3), ("slots_used", 0), ("jobs_waiting", 0)):
            assert registry.get_sample_value(f"orchestration_queue_pool_{figure}", {"pool": queue_name}) == value
        queue.pools.remove(queue_name)
        for _ in range(10):
            queue.add("one", {}, JobOptions(share="a"))
        assert (read("share_jobs_waiting", share="a"), read("depth", state="waiting")) == (2, 11)


def test_an_outage_is_shown_and_kills_nobody(tmp_path: Path) -> None:
    server = start_server(tmp_path / "valkey.sock")
    registry = CollectorRegistry()
    try:
        url = f"unix://{tmp_path / 'valkey.sock'}"
        with Connection.open(url, connect_timeout=timedelta(seconds=1)) as connection:
            QueueCollector([Queue("q", connection=connection)], registry)
            assert registry.get_sample_value("orchestration_queue_server_up", {"queue": "q"}) == 1
            server.send_signal(signal.SIGKILL)
            server.wait(10)
            assert registry.get_sample_value("orchestration_queue_server_up", {"queue": "q"}) == 0
            assert registry.get_sample_value("orchestration_queue_paused", {"queue": "q"}) is None
    finally:
        server.kill()
        server.wait(10)


def call_page(registry: CollectorRegistry) -> Page:
    return Page(generate_latest(registry).decode())


async def test_calls_of_clients_and_workers_are_measured(server_url: str, queue_name: str) -> None:
    registry = CollectorRegistry()
    worker = Worker(queue_name, lambda job: None, url=server_url, options=WorkerOptions(block=timedelta(seconds=0.2)))
    with CallMetrics(registry):
        running = asyncio.ensure_future(worker.run())
        async with AsyncQueue(queue_name, url=server_url) as queue:
            await (await queue.add("work")).wait(timedelta(seconds=30))
        await wait_until(lambda: worker.is_listening, "the worker to listen again")
        worker.stop()
        await running
    found = call_page(registry)
    assert found.value("server_call_duration_seconds_count", call="glidemq_addJob") == 1
    assert found.value("server_call_duration_seconds_count", call="oq1_exchange") >= 2
    assert 0 < found.value("server_call_duration_seconds_sum", call="oq1_exchange") < 30
    measured = {
        call.labels["call"] for call in found.samples if call.name.endswith("server_call_duration_seconds_count")
    }
    assert not {"XREADGROUP", "XREAD"} & measured, "a wait is no delay"
    assert exchange_hooks == []


def test_failed_calls_are_counted_by_code(tmp_path: Path) -> None:
    socket_path = tmp_path / "own.sock"
    process = start_server(socket_path, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
    registry = CollectorRegistry()
    with CallMetrics(registry):
        url = f"unix://{socket_path}"
        with Connection.open(url, libraries=(), connect_timeout=timedelta(milliseconds=50)) as connection:
            for call in (
                Call("SET", ("key",), ("value",)),
                Call("HGET", ("key",)),
                Call("XINFO", args=("GROUPS", "x")),
            ):
                with pytest.raises(ServerError):
                    connection.execute(call)
            pipe = [Call("PING"), Call("SET", ("key",), ("value",))]
            assert isinstance(connection.pipeline(pipe)[1], ServerError)
            process.kill()
            process.wait(10)
            with pytest.raises(TransportError):
                connection.execute(Call("TIME"))
    found = call_page(registry)
    errors = {
        (sample.labels["call"], sample.labels["code"]): sample.value
        for sample in found.samples
        if sample.name == "orchestration_queue_server_call_errors_total"
    }
    assert errors == {
        ("SET", "OOM"): 2,
        ("HGET", "ERR"): 1,
        ("XINFO", "ERR"): 1,
        ("TIME", "unreachable"): 1,
    }
    assert found.value("server_call_duration_seconds_count", call="pipeline") == 1


@pytest.fixture
def free_port() -> int:
    """A port without a listener, which the system gives to no client that connects meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


def test_a_worker_process_serves_all_metrics_that_are_documented(
    server_url: str, queue_name: str, free_port: int, tmp_path: Path
) -> None:
    arguments = ("--metrics-port", str(free_port), "--queue-metrics", "--queue", f"{queue_name}-two")
    others = ("--metrics-queue", f"{queue_name}-of-others")
    with (
        worker_process("builtins:repr", queue_name, server_url, *arguments, *others, log=tmp_path / "log") as worker,
        Queue(f"{queue_name}-two", url=server_url) as second,
    ):
        wait_until_sync(lambda: _is_ready(free_port), "the worker to be ready", 60)
        wait_until_sync(lambda: len(second.workers()) == 1, "the worker to serve the second queue, too", 60)
        status, text = page(free_port, "/metrics")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert status == 200
    check_page(text, METRICS)
    told = set(re.findall(r'depth\{queue="(\S+?)",state="waiting"\}', text))
    assert told == {queue_name, f"{queue_name}-two", f"{queue_name}-of-others"}


def _is_ready(port: int) -> bool:
    try:
        return page(port, "/readyz")[0] == 200
    except OSError:
        return False


def test_a_port_that_is_taken_is_refused_in_one_sentence() -> None:
    with (
        TelemetryServer(CollectorRegistry(), port=0) as first,
        pytest.raises(UsageError, match=rf"Cannot listen on port {first.port} of 127\.0\.0\.1 .*--metrics-port"),
    ):
        TelemetryServer(CollectorRegistry(), port=first.port)
