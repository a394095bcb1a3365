"""What `oq doctor` finds of ChasquiMQ's queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchestration_queue.doctor.finding import Finding, Severity
from orchestration_queue.server import Connection
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, ChasquiJob
from orchestration_queue.wires.chasquimq.doctor import (
    QUEUE_CHECKS,
    InspectedChasquiQueue,
    queue_names,
)
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.working import working
from tests.waiting import wait_until

OLD_MS = 1_000_000_000_000


@pytest.fixture
def findings(server: Any, server_url: str, keys: ChasquiKeys) -> Callable[[], list[Finding]]:
    """A function that runs all checks of the queue."""

    def run() -> list[Finding]:
        with Connection.open(server_url, libraries=()) as connection:
            inspected = InspectedChasquiQueue(keys, connection)
            return [finding for check in QUEUE_CHECKS for finding in check(inspected)]

    return run


@asynccontextmanager
async def idle_worker(queue: AsyncChasquiQueue, url: str, server: Any) -> AsyncIterator[None]:
    async def handle(_: ChasquiJob) -> None:
        await asyncio.Event().wait()

    async with working(queue.name, handle, url, concurrency=1):
        await wait_until(lambda: server.exists(queue.keys.stream), "the worker to create its group")
        yield


async def test_a_healthy_queue_has_no_findings(
    queue: AsyncChasquiQueue, findings: Callable[[], list[Finding]], server: Any, server_url: str
) -> None:
    assert findings() == []
    async with idle_worker(queue, server_url, server):
        await queue.add("later", delay=3600)
        await queue.put_schedule("nightly", cron="0 2 * * *")
        assert await asyncio.to_thread(findings) == []


@pytest.mark.parametrize("broken", ["no worker", "paused", "overdue", "malformed", "spec", "late schedule", "stale"])
async def test_each_problem_is_found(
    broken: str, queue: AsyncChasquiQueue, findings: Callable[[], list[Finding]], server: Any, keys: ChasquiKeys
) -> None:
    expected = {
        "no worker": "no worker has read it",
        "paused": "It is paused, and has 1 ready job",
        "overdue": "A delayed job has been due",
        "malformed": "1 delayed job of the next 1 cannot be read",
        "spec": "The spec of repeatable job x cannot be read",
        "late schedule": "Repeatable job nightly::cron:0 2 * * *:UTC has been due",
        "stale": "The leases of 1 running job",
    }
    if broken in ("no worker", "paused", "stale"):
        await queue.add("x")
    if broken == "paused":
        await queue.pause()
    if broken == "stale":
        server.xgroup_create(keys.stream, "default", "0")
        (((_, ((entry, _),)),)) = server.xreadgroup("default", "dead", {keys.stream: ">"}, count=1)
        server.xclaim(keys.stream, "default", "dead", 0, [entry], idle=120_000)
    if broken == "overdue":
        await queue.add("x", delay=3600)
        (member,) = server.zrange(keys.delayed, 0, 0)
        server.zadd(keys.delayed, {member: OLD_MS})
    if broken == "malformed":
        server.zadd(keys.delayed, {b"\xff": 2 * OLD_MS})
    if broken == "spec":
        server.zadd(keys.repeat, {"x": 2 * OLD_MS})
        server.hset(keys.spec("x"), "spec", b"\xc1")
    if broken == "late schedule":
        key = await queue.put_schedule("nightly", cron="0 2 * * *")
        server.zadd(keys.repeat, {key: OLD_MS})
    (found,) = await asyncio.to_thread(findings)
    assert found.what.startswith(expected[broken]) or expected[broken] in found.what
    assert (found.severity is Severity.HINT) is (broken in ("paused", "stale"))


async def test_queues_are_found_by_their_keys(queue: AsyncChasquiQueue, server_url: str) -> None:
    await queue.add("x", delay=3600)
    async with AsyncChasquiQueue("odd}:name", url=server_url) as odd:
        await odd.add("x")
    with Connection.open(server_url, libraries=()) as connection:
        assert connection.follow(queue_names()) == sorted([queue.name, "odd}:name"])
