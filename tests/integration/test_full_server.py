"""A full server (maxmemory, noeviction) refuses additions; everything that ends work or frees memory works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import ServerError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.operations.moves import move
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.workers import working


@pytest.fixture
def fill(raw: redis.Redis) -> Iterator[Any]:
    yield lambda: raw.config_set("maxmemory", 1)
    raw.config_set("maxmemory", 0)


async def work(job: AsyncActiveJob) -> str:
    return "done"


async def test_a_worker_that_starts_on_a_full_server_drains_it(
    server_url: str, queue_name: str, raw: redis.Redis, fill: Any
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        raw.xgroup_create(queue.keys.stream, "workers", "0", mkstream=True)  # a worker was there before
        jobs = await queue.add_bulk(
            [NewJob("task"), NewJob("task", options=JobOptions(lifo=True)), NewJob("task", options={"priority": 1})]
        )
        fill()
        with pytest.raises(ServerError, match="maxmemory"):
            await queue.add("task")
        async with working(queue, work, server_url):
            assert [await job.wait(timedelta(seconds=60)) for job in jobs] == ["done"] * 3


async def test_jobs_of_shares_are_drained_from_a_full_server(
    server_url: str, queue_name: str, raw: redis.Redis, fill: Any
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        raw.xgroup_create(queue.keys.stream, "workers", "0", mkstream=True)
        await queue.shares.set("a", 3)
        plain = await queue.add_bulk([NewJob("plain") for _ in range(20)])
        jobs = await queue.add_bulk([NewJob("task", options=JobOptions(share=name)) for name in "aabb" * 10])
        fill()
        with pytest.raises(ServerError, match="maxmemory"):
            await queue.add("task", options=JobOptions(share="c"))
        async with working(queue, work, server_url):
            assert [await job.wait(timedelta(seconds=60)) for job in [*jobs, *plain]] == ["done"] * 60
        assert [(share.name, share.waiting) for share in await queue.shares.list()] == [("a", 0)]


async def test_a_move_on_a_server_that_fills_up_is_refused_or_finished(
    face: Face, queue_name: str, raw: redis.Redis, fill: Any
) -> None:
    async with face.queue(queue_name) as queue, face.queue(f"{queue_name}-other") as other:
        await queue.add_bulk([NewJob("task", options=JobOptions(job_id=f"j{n}")) for n in range(3)])
        async with await AsyncConnection.open(face.url) as server:
            steps = move(queue.keys, other.keys, "j1", now_ms())
            calls = next(steps)
            for _ in range(2):
                calls = steps.send(await server.pipeline(calls))
            fill()
            with suppress(StopIteration):
                while True:
                    calls = steps.send(await server.pipeline(calls))
        done = await queue.move_jobs(["j0", "j2"], other.name)
        assert (done.moved, set(done.left)) == ((), {"j0", "j2"})
        assert "maxmemory" in done.left["j0"]
        assert ((await queue.counts()).waiting, (await other.counts()).waiting) == (2, 1)


async def test_jobs_of_a_full_server_are_cancelled_removed_cleaned_and_drained(
    face: Face, server_url: str, queue_name: str, raw: redis.Redis, fill: Any
) -> None:
    async with face.queue(queue_name) as queue:
        jobs = await queue.add_bulk([NewJob("task") for _ in range(5)])
        fill()
        await jobs[0].cancel()
        assert await jobs[1].remove()
        assert await queue.clean(0, state="failed") == [jobs[0].id]
        assert await queue.drain() == 3
        assert raw.xlen(queue.keys.stream) == 0


@pytest.mark.parametrize("options", [JobOptions(), JobOptions(lifo=True), JobOptions(priority=1), JobOptions(delay=60)])
async def test_a_removed_job_is_counted_nowhere(face: Face, queue_name: str, options: JobOptions) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("task", options=options)
        assert await job.remove()
        counts = await queue.counts()
        assert (counts.waiting, counts.delayed, await queue.count()) == (0, 0, 0)
