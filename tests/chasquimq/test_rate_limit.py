"""Rate limits: over all workers, kept when one leaves, counted by each for itself while the server is full."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue import RateLimit
from orchestration_queue.server.clock import travel
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, ChasquiEvents, ChasquiJob, NewChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until

DAY = timedelta(days=1)
LIMIT = RateLimit(max=5, duration=DAY)


@pytest.fixture(autouse=True)
def _back_in_the_present() -> Iterator[None]:
    yield
    travel(timedelta(0))


def asked(server: Any) -> int:
    """How often workers have asked for starts, or given them back."""
    return int(server.info("commandstats").get("cmdstat_incrby", {}).get("calls", 0))


async def test_all_workers_share_the_starts_of_a_window(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    ran: list[str] = []

    async def work(job: ChasquiJob) -> None:
        ran.append(job.id)

    jobs = await queue.add_bulk([NewChasquiJob("x")] * 12)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(working(queue.name, work, server_url, concurrency=3, rate_limit=LIMIT))
        for day, expected in enumerate((5, 10)):
            travel(day * DAY)
            await wait_until(lambda expected=expected: len(ran) >= expected, "the window's jobs to run")  # type: ignore[misc]
            before = asked(server)
            await wait_until(lambda before=before: asked(server) >= before + 8, "both workers to ask again")  # type: ignore[misc]
            assert len(ran) == expected
            pending = server.xpending(keys.stream, "default")["pending"]
            assert pending == 0, "what may not start stays in the queue, for any worker"
        travel(2 * DAY)
        await wait_until(lambda: is_settled(server, keys), "the rest to run")
    assert sorted(ran) == sorted(job.id for job in jobs)
    counts = list(server.scan_iter(f"{keys.starts}:*"))
    assert counts
    assert all(0 < server.pttl(key) <= 2 * DAY.total_seconds() * 1000 for key in counts)


async def test_the_command_takes_a_limit(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    await queue.add_bulk([NewChasquiJob("report")] * 8)
    words = ("chasqui", "worker", queue.name, "builtins:id", "--rate", "5", "--per", "31536000")
    worker = await asyncio.create_subprocess_exec(Path(sys.executable).with_name("oq"), *words, "--url", server_url)
    try:
        await wait_until(lambda: server.xlen(keys.stream) == 3, "five to run")
        before = asked(server)
        await wait_until(lambda: asked(server) >= before + 4, "the worker to ask again")
        assert server.xlen(keys.stream) == 3
    finally:
        worker.terminate()
        assert await worker.wait() == 0


async def test_an_idle_worker_gives_back_the_starts_that_it_did_not_use(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    ran: list[str] = []

    async def work(job: ChasquiJob) -> None:
        ran.append(job.id)

    before = asked(server)
    async with working(queue.name, work, server_url, rate_limit=LIMIT):
        await wait_until(lambda: asked(server) > before, "a read that finds nothing")
    (count,) = server.scan_iter(f"{keys.starts}:*")
    assert int(server.get(count)) == 0
    await queue.add_bulk([NewChasquiJob("x")] * 5)
    async with working(queue.name, work, server_url, rate_limit=LIMIT):
        await wait_until(lambda: len(ran) == 5, "all five to run")
    assert int(server.get(count)) == 5


async def test_a_queue_that_only_waits_for_its_window_is_not_reported_as_drained(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    async def work(job: ChasquiJob) -> None:
        pass

    await queue.add_bulk([NewChasquiJob("x")] * 6)
    async with working(queue.name, work, server_url, rate_limit=LIMIT):
        await wait_until(lambda: server.xlen(keys.stream) == 1, "five to run")
        before = asked(server)
        await wait_until(lambda: asked(server) >= before + 4, "the worker to ask again")

    def kinds() -> list[str]:
        with ChasquiEvents(queue.name, url=server_url, after="0") as events:
            return [event.type for event in events.read(0)]

    assert "drained" not in await asyncio.to_thread(kinds)


async def test_a_full_server_is_still_drained_within_the_limit(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    ran: list[str] = []

    async def work(job: ChasquiJob) -> None:
        ran.append(job.id)

    await queue.add_bulk([NewChasquiJob("x")] * 8)
    server.xgroup_create(keys.stream, "default", "0")
    server.config_set("maxmemory", 1)
    try:
        async with working(queue.name, work, server_url, rate_limit=LIMIT, emit_events=False):
            await wait_until(lambda: server.xlen(keys.stream) == 3, "five to run")
            refused = int(server.info("errorstats")["errorstat_OOM"]["count"])
            more = refused + 4
            await wait_until(lambda: int(server.info("errorstats")["errorstat_OOM"]["count"]) >= more, "more questions")
        assert len(ran) == 5
    finally:
        server.config_set("maxmemory", 0)
