"""The worker, by what it leaves on the server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
import redis
from reqless import Client

from orchestration_queue.errors import UnrecoverableError, UsageError
from orchestration_queue.tasks import Tasks
from orchestration_queue.wires.qless import (
    AsyncQlessClient,
    QlessJob,
    QlessNext,
    QlessWorker,
    QlessWorkerOptions,
)
from tests.waiting import wait_until


@pytest.fixture
async def qless(server: redis.Redis, server_url: str) -> AsyncIterator[AsyncQlessClient]:
    async with AsyncQlessClient(url=server_url, worker="producer") as client:
        yield client


@asynccontextmanager
async def working(url: str, queues: Any, handler: Any, **options: Any) -> AsyncIterator[QlessWorker]:
    middleware = options.pop("middleware", ())
    chosen = QlessWorkerOptions(**{"interval": 0.02, "shutdown_timeout": 20} | options)
    worker = QlessWorker(queues, handler, url=url, options=chosen, middleware=middleware)
    task = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, 60)


def state(server: redis.Redis, jid: str) -> Any:
    return server.hget(f"ql:j:{jid}", "state")


class Nightly:
    seen: ClassVar[list[str]] = []

    @staticmethod
    def process(job: QlessJob) -> None:
        Nightly.seen.append(f"process {job.jid}")

    @staticmethod
    def special(job: QlessJob) -> None:
        Nightly.seen.append(f"special {job.jid}")


async def test_middleware_surrounds_each_run_and_decides_its_outcome(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    said: list[str] = []

    async def note(job: QlessJob, call_next: Any) -> Any:
        said.append(f"before {job.jid}")
        result = await call_next()
        said.append(f"after {job.jid}")
        return result

    async def refuse(job: QlessJob, call_next: Any) -> Any:
        if job.jid == "refused":
            raise ValueError("not today")
        return await call_next()

    await qless.put("q", "Load", {}, jid="fine")
    await qless.put("q", "Load", {}, jid="refused")
    async with working(
        server_url, "q", lambda job: said.append(f"ran {job.jid}"), middleware=[note, refuse], concurrency=1
    ):
        await wait_until(lambda: state(server, "fine") == "complete" and state(server, "refused") == "failed", "both")
    assert said == ["before fine", "ran fine", "after fine", "before refused"]
    assert await qless.failures() == {"q-ValueError": 1}


async def test_jobs_run_in_coroutines_and_threads(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    seen: list[tuple[str, Any, bool]] = []
    main = threading.current_thread()

    async def on_loop(job: QlessJob) -> None:
        seen.append((job.klass, job.data, threading.current_thread() is main))

    def in_thread(job: QlessJob) -> None:
        seen.append((job.klass, job.data, threading.current_thread() is main))

    class Router:
        def handler(self, name: str) -> Any:
            return on_loop if name == "loop" else in_thread

    for number in range(30):
        await qless.put("q", "loop", number)
    await qless.put("q", "thread", [1])
    async with working(server_url, "q", Router()):
        await wait_until(lambda: server.zcard("ql:completed") == 31, "all jobs to be complete")
    assert sorted(seen, key=str) == sorted([("loop", n, True) for n in range(30)] + [("thread", [1], False)], key=str)
    assert await qless.workers() == []


async def test_a_job_moves_on_and_another_fails(qless: AsyncQlessClient, server: redis.Redis, server_url: str) -> None:
    def handler(job: QlessJob) -> QlessNext | None:
        if job.klass == "Bad":
            raise KeyError("column")
        return QlessNext("second", {"step": 2}) if job.queue == "first" else None

    await qless.put("first", "Good", jid="good")
    await qless.put("first", "Bad", jid="bad")
    async with working(server_url, ["first", "second"], handler):
        await wait_until(lambda: state(server, "good") == "complete" and state(server, "bad") == "failed", "both")
    assert await qless.failures() == {"first-KeyError": 1}
    good, bad = await qless.get_many(["good", "bad"])
    assert good.data == {"step": 2}
    assert bad.failure is not None
    assert "KeyError: 'column'" in bad.failure.message


async def test_a_job_is_retried_as_often_as_it_may_be(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    runs: list[str] = []

    async def handler(job: QlessJob) -> None:
        runs.append(job.jid)
        raise UnrecoverableError("no") if job.klass == "Never" else ValueError("again")

    await qless.put("q", "K", jid="j", retries=2)
    await qless.put("q", "Never", jid="never", retries=2)
    async with working(server_url, "q", handler, retry_delay=0):
        await wait_until(lambda: state(server, "j") == state(server, "never") == "failed", "both to fail")
    assert sorted(runs) == ["j", "j", "j", "never"]
    assert await qless.failures() == {"q-ValueError": 1, "q-UnrecoverableError": 1}


async def test_a_class_is_run_by_its_method_of_the_queues_name(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    Nightly.seen.clear()
    klass = f"{Nightly.__module__}.Nightly"
    for queue, jid, name in (("special", "a", klass), ("other", "b", klass), ("other", "c", "no.such.Class")):
        await qless.put(queue, name, jid=jid)
    async with working(server_url, ["special", "other"], None):
        await wait_until(lambda: server.zcard("ql:completed") == 2 and state(server, "c") == "failed", "all to end")
    assert sorted(Nightly.seen) == ["process b", "special a"]


async def test_a_lost_job_is_cancelled_at_once(qless: AsyncQlessClient, server: redis.Redis, server_url: str) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(job: QlessJob) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await qless.put("q", "K", jid="j")
    async with working(server_url, "q", handler):
        await asyncio.wait_for(started.wait(), 30)
        await qless.cancel("j")
        await asyncio.wait_for(cancelled.wait(), 30)
    assert await qless.get("j") is None


async def test_a_lock_is_kept_while_its_job_blocks_the_loop(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    await qless.set_config("heartbeat", 2)
    await qless.put("q", "K", jid="j")
    first = ""

    async def handler(job: QlessJob) -> None:
        nonlocal first
        first = str(server.hget("ql:j:j", "expires"))
        ended = threading.Event()
        for _ in range(600):  # the loop does not run meanwhile
            if server.hget("ql:j:j", "expires") != first:
                return
            ended.wait(0.05)

    async with working(server_url, "q", handler):
        await wait_until(lambda: state(server, "j") == "complete", "the job to be complete")
    assert (await qless.stats("q")).retries == 0


async def test_tasks_run_by_name(qless: AsyncQlessClient, server: redis.Redis, server_url: str) -> None:
    seen: list[int] = []
    tasks = Tasks()

    @tasks.task
    def double(number: int) -> None:
        seen.append(2 * number)

    new = double.job(4)
    await qless.put("q", new.name, new.data)
    async with working(server_url, "q", tasks):
        await wait_until(lambda: server.zcard("ql:completed") == 1, "the task to run")
    assert seen == [8]


async def test_queues_are_served_in_order_or_in_turn(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    for order, expected in (("ordered", "CCCBBAAAAA"), ("round-robin", "CBACBACAAA")):
        served: list[str] = []
        for queue, count in (("A", 5), ("B", 2), ("C", 3)):
            for _ in range(count):
                await qless.put(queue, "K")

        async def handler(job: QlessJob, served: list[str] = served) -> None:
            served.append(job.queue)

        async with working(server_url, ["C", "B", "A"], handler, order=order, concurrency=1):
            await wait_until(lambda: len(served) == 10, "all to run")  # noqa: B023  it is over before the next
            await wait_until(lambda: not server.keys("ql:q:*-locks"), "all to be complete")
        assert "".join(served) == expected


def test_wrong_arguments_are_refused() -> None:
    right: dict[str, Any] = {"queues": "q", "handler": print}
    cases: list[dict[str, Any]] = [{"queues": []}, {"queues": [""]}, {"handler": 5}, {"options": 5}, {"name": ""}]
    for wrong in cases:
        with pytest.raises(UsageError):
            QlessWorker(**(right | wrong))


_WORKER = """
import asyncio, sys
from orchestration_queue.wires.qless import QlessWorker, QlessWorkerOptions
async def handler(job):
    await asyncio.sleep(0.01 if int(job.jid[1:]) < 10 else 600)
asyncio.run(QlessWorker("q", handler, url=sys.argv[1], options=QlessWorkerOptions(interval=0.05)).run())
"""


async def test_a_mixed_fleet_loses_no_job_when_a_worker_is_killed(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    await qless.set_config("heartbeat", 1)
    await qless.set_config("grace-period", 0)
    theirs: Any = Client(server_url, hostname="theirs")
    for number in range(100):
        if number % 2:
            theirs.queues["q"].put("K", "{}", jid=f"j{number}")
        else:
            await qless.put("q", "K", jid=f"j{number}")
    process = subprocess.Popen([sys.executable, "-c", _WORKER, server_url])  # noqa: ASYNC220  starts at once
    try:
        await wait_until(lambda: server.zcard("ql:completed") >= 5, "the worker to complete some")
        await wait_until(lambda: server.zcard("ql:q:q-locks"), "it to hold others")
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        held: set[Any] = set(server.zrange("ql:q:q-locks", 0, -1))

        def work() -> bool:
            while (job := theirs.queues["q"].pop()) is not None:
                job.complete()
            return server.zcard("ql:completed") == 100

        await wait_until(work, "all jobs to be complete")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
        theirs.redis.close()
    lost = [
        job for job in await qless.get_many([f"j{number}" for number in range(100)]) if job.remaining != job.retries
    ]
    assert not lost  # a completed job has all its retries again
    taken_over = {
        jid for jid in held if "timed-out" in [entry["what"] for entry in (await qless.get_many([jid]))[0].history]
    }
    assert taken_over == held
    assert not server.keys("ql:w:*:jobs")
