"""Rate limits of qless's workers: per queue, over all workers; what may not start stays where it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from orchestration_queue import RateLimit
from orchestration_queue.server.clock import travel
from orchestration_queue.wires.qless import AsyncQlessClient, QlessJob, QlessWorker, QlessWorkerOptions
from tests.waiting import wait_until

DAY = timedelta(days=1)
OPTIONS = QlessWorkerOptions(
    concurrency=3, interval=0.02, shutdown_timeout=20, rate_limit=RateLimit(max=5, duration=DAY)
)


@pytest.fixture(autouse=True)
def _back_in_the_present() -> Iterator[None]:
    yield
    travel(timedelta(0))


async def test_all_workers_share_the_starts_of_each_queue(server: redis.Redis, server_url: str) -> None:
    ran: list[str] = []

    async def work(job: QlessJob) -> None:
        ran.append(job.queue)

    async def serve(stack: AsyncExitStack) -> None:
        worker = QlessWorker(["a", "b"], work, url=server_url, options=OPTIONS)
        task = asyncio.ensure_future(worker.run())
        stack.push_async_callback(asyncio.wait_for, task, 60)
        stack.callback(worker.stop)

    def asked() -> int:
        return int(server.info("commandstats").get("cmdstat_incrby", {}).get("calls", 0))

    async with AsyncQlessClient(url=server_url) as client, AsyncExitStack() as stack:
        for queue in ("a", "b"):
            for _ in range(7):
                await client.put(queue, "Job", {})
        await serve(stack)
        await serve(stack)
        await wait_until(lambda: len(ran) >= 10, "the window's jobs to run")
        before = asked()
        await wait_until(lambda: asked() >= before + 12, "both workers to ask again")
        assert sorted(ran) == ["a"] * 5 + ["b"] * 5
        counts = list(server.scan_iter("oq:qless:starts:*"))
        assert len(counts) == 2
        assert all(0 < server.pttl(key) <= 2 * DAY.total_seconds() * 1000 for key in counts)
        assert server.zcard("ql:q:a-locks") == 0, "what may not start is not taken"
        travel(DAY)
        await wait_until(lambda: len(ran) == 14, "the rest to run")
    assert sorted(ran) == ["a"] * 7 + ["b"] * 7


async def test_the_command_takes_a_limit(server: redis.Redis, server_url: str) -> None:
    def asked() -> int:
        return int(server.info("commandstats").get("cmdstat_incrby", {}).get("calls", 0))

    async with AsyncQlessClient(url=server_url) as client:
        for _ in range(8):
            await client.put("a", "Job", {})
    words = ("qless", "worker", "a", "--handler", "builtins:id", "--rate", "5", "--per", "31536000")
    worker = await asyncio.create_subprocess_exec(Path(sys.executable).with_name("oq"), *words, "--url", server_url)
    try:
        await wait_until(lambda: server.zcard("ql:q:a-work") == 3, "five to start")
        before = asked()
        await wait_until(lambda: asked() >= before + 4, "the worker to ask again")
        assert server.zcard("ql:q:a-work") == 3
    finally:
        worker.terminate()
        assert await worker.wait() == 0
