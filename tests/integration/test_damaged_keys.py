"""A key of another type, as a wrong client or a hand leaves it, stops no add, no worker and no sweep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import ServerError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import JobOptions, Ordering
from orchestration_queue.schedules import Every
from tests.waiting import wait_until
from tests.workers import working

DAMAGE: dict[str, tuple[str | int, ...]] = {
    "string": ("SET", "damaged"),
    "list": ("RPUSH", "damaged"),
    "set": ("SADD", "damaged"),
    "zset": ("ZADD", 1, "damaged"),
    "hash": ("HSET", "damaged", "1"),
    "stream": ("XADD", "*", "damaged", "1"),
}
OURS: dict[str, str] = {
    "wake": "stream",
    "wake:one": "stream",
    "outbox": "zset",
    "tags": "zset",
    "tag:red": "zset",
    "schedulers:due": "zset",
    "schedulers:history:often": "list",
    "list-active:jobs": "zset",
    "flows": "zset",
    "flows:due": "zset",
    "flows:ended": "zset",
    "moving": "zset",
    "statistics:TODAY": "hash",
}
"""Keys of this package, and the type of each."""
SWEPT = ("flows", "flows:due", "flows:ended", "moving")
"""Read or written without a function of the server; the next sweep sets them aside."""
PARTS: dict[str, str] = {
    "job:FIRST": "hash",
    "log:FIRST": "list",
    "parents:FIRST": "set",
    "deps:LAST": "set",
    "group:GROUP": "hash",
    "groupq:GROUP": "zset",
    "orderdone:pending:GROUP": "hash",
    "job:ORDERED": "hash",
}
"""Keys of one job or group, of any client."""
WIRE = [
    *("stream", "events", "scheduled", "completed", "failed", "lifo", "priority", "suspended", "ratelimited"),
    *("meta", "schedulers", "metrics:completed", "metrics:failed", "list-active"),
]
"""Keys that all languages share: what is in them is not ours to set aside."""


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


def damage(raw: redis.Redis, key: str, kind: str) -> None:
    driver: Any = raw  # its stubs leave this method untyped
    command, *words = DAMAGE[kind]
    raw.unlink(key)
    driver.execute_command(command, key, *words)


async def work(job: Any) -> int:
    if job.name == "fail":
        raise ValueError("no")
    return 1


async def use(queue: AsyncQueue, url: str, number: int) -> None:
    """Add a job of each kind, and wait until all have ended."""
    shapes = (
        JobOptions(),
        JobOptions(priority=5),
        JobOptions(lifo=True),
        JobOptions(delay=0.001),
        JobOptions(tags=["red"]),
        JobOptions(ordering=Ordering(key="one", concurrency=2)),
    )
    jobs = [await queue.add("work", options=options) for options in shapes]
    failing = await queue.add("fail")
    await queue.schedulers.upsert("often", Every(timedelta(milliseconds=50)))
    async with AsyncFlowProducer(url=url) as producer:
        dag = Dag("flow", [Node("a"), Node("b", deps=["a"])], queue=queue.name)
        flow = await producer.submit(dag, flow_id=f"f{number}")
        for job in jobs:
            await job.wait(timeout=30)
        await flow.wait(timeout=30)
        with pytest.raises(Exception, match="no"):
            await failing.wait(timeout=30)
    await queue.schedulers.remove("often")


async def set_aside(raw: redis.Redis, key: str, kind: str) -> None:
    await wait_until(lambda: raw.type(key) != kind, f"the sweep to set {key} aside")


@pytest.mark.parametrize("name", OURS)
async def test_a_key_of_ours_of_another_type_stops_nothing(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = queue.keys.named(name.replace("TODAY", datetime.now(UTC).date().isoformat()))
    async with working(queue, work, server_url, dead_letter_queue=f"{queue.name}-dead") as worker:
        for number, kind in enumerate(DAMAGE):
            if kind == OURS[name]:
                continue
            damage(raw, key, kind)
            if name in SWEPT:
                await set_aside(raw, key, kind)
            await use(queue, server_url, number)
            assert worker.is_ready
    told = [record.getMessage() for record in caplog.records]
    expected = ["Attempt 1", "can't be reconciled", "reconcile loop failed"]
    if name == "wake:one":  # a wait at that key ends with it, and the next one is without it
        expected.append("Waiting for jobs was interrupted")
    assert [text for text in told if not any(words in text for words in expected)] == []
    raw.unlink(key)  # a day's statistics may have changed before


async def test_what_is_set_aside_is_kept_for_a_while(queue: AsyncQueue, raw: redis.Redis, server_url: str) -> None:
    raw.set(queue.keys.tags, "another's")
    async with working(queue, work, server_url):
        await set_aside(raw, queue.keys.tags, "string")
    kept = queue.keys.named("damaged:tags")
    assert raw.get(kept) == "another's"
    assert 0 < raw.ttl(kept) <= 7 * 86400


@pytest.mark.parametrize("name", PARTS)
async def test_a_part_of_a_job_of_another_type_stops_no_other_job(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    others: list[str] = []
    for number, kind in enumerate(DAMAGE):
        if kind == PARTS[name]:
            continue
        dag = Dag("flow", [Node("a"), Node("b", deps=["a"]), Node("c", deps=["a"])], queue=queue.name)
        async with AsyncFlowProducer(url=server_url) as producer:
            await producer.submit(dag, flow_id=f"f{number}")
        ordered = [await queue.add("work", options=JobOptions(ordering=Ordering(key=f"k{number}"))) for _ in range(3)]
        ids = {"FIRST": f"f{number}.a", "LAST": f"f{number}.b", "GROUP": f"k{number}", "ORDERED": ordered[0].id}
        for word, value in ids.items():
            name_ = name.replace(word, value)
            if name_ != name:
                damage(raw, queue.keys.named(name_), kind)
        others.append((await queue.add("fail")).id)
        others.append((await queue.add("work", options=JobOptions(tags=["red"]))).id)
    async with working(queue, work, server_url) as worker:
        for job_id in others:
            await wait_until(lambda job_id=job_id: raw.hget(queue.keys.job(job_id), "finishedOn"), f"{job_id} to end")  # type: ignore[misc]  # text
        await wait_until(lambda: raw.xlen(queue.keys.stream) == 0, "all that can run to have run")
        assert worker.is_ready
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "Attempt 1" not in text and "can't be reconciled" not in text] == []
    raw.flushall()


@pytest.mark.parametrize("name", WIRE)
async def test_a_worker_goes_on_when_a_key_of_the_wire_is_whole_again(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, name: str
) -> None:
    key = queue.keys.named(name)
    async with working(queue, work, server_url) as worker:
        await use(queue, server_url, 0)
        damage(raw, key, "set")
        shapes = JobOptions(), JobOptions(priority=5), JobOptions(lifo=True), JobOptions(delay=0.001)
        for options in shapes:
            with suppress(ServerError):
                await queue.add("work", options=options)
        await asyncio.sleep(0.05)  # whether or not it notices
        raw.unlink(key)
        await use(queue, server_url, 1)
        assert worker.is_ready
    raw.flushall()
