"""Workers of subscriptions for tests, and what they saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from orchestration_queue.client import AsyncBroadcast
from orchestration_queue.options import (
    Backoff,
    JobOptions,
    WorkerOptions,
)
from orchestration_queue.protocol.operations import taking_over
from orchestration_queue.protocol.operations.subscribing import Member
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker import AsyncActiveJob, BroadcastWorker
from tests.waiting import wait_until

__all__ = ["QUICK", "THRICE", "Seen", "idle", "settled", "subscribed"]

QUICK = WorkerOptions(
    concurrency=4,
    lock_duration=timedelta(seconds=1),
    stalled_interval=timedelta(milliseconds=200),
    promotion_interval=timedelta(milliseconds=50),
    drain=timedelta(seconds=5),
)
THRICE = JobOptions(attempts=3, backoff=Backoff(type="fixed", delay=timedelta(milliseconds=20)))


class Seen:
    """A handler that notes what it is given."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []
        self.attempts: list[int] = []

    async def __call__(self, job: AsyncActiveJob) -> str:
        self.messages.append((job.name, job.data))
        self.attempts.append(job.attempt)
        return "seen"

    @property
    def data(self) -> list[Any]:
        return [data for _, data in self.messages]


@asynccontextmanager
async def subscribed(
    shop: AsyncBroadcast,
    subscription: str,
    handler: Callable[..., Any],
    url: str,
    *,
    subjects: Iterable[str] = (),
    start_from: str = "$",
    **options: Any,
) -> AsyncIterator[BroadcastWorker]:
    """A worker of a subscription, listening, and stopped in the end."""
    quick = QUICK.model_copy(update=options)
    worker = BroadcastWorker(
        shop.name, handler, subscription=subscription, subjects=subjects, start_from=start_from, url=url, options=quick
    )
    running = asyncio.ensure_future(worker.run())
    await wait_until(
        lambda: worker.is_listening or worker.running or worker.is_paused or running.done(), "the worker to start"
    )
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 10)


async def settled(shop: AsyncBroadcast) -> None:
    """Wait until no subscription owes anything."""
    async with asyncio.timeout(10):
        while any(one.pending or one.lag for one in await shop.subscriptions()):  # noqa: ASYNC110  the server tells nobody
            await asyncio.sleep(0.005)


async def idle(url: str, shop: AsyncBroadcast, subscription: str, duration: timedelta) -> None:
    """Wait until an entry has been in the subscription's hands for so long."""
    operation = taking_over.idle(Member(shop.keys, subscription, ""), duration // timedelta(milliseconds=1))
    async with await AsyncConnection.open(url) as connection, asyncio.timeout(10):
        while not await connection.run(operation):  # noqa: ASYNC110  the server tells nobody
            await asyncio.sleep(0.02)
