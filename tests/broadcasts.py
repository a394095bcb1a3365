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
from orchestration_queue.worker import AsyncActiveJob, BroadcastWorker
from tests.waiting import wait_until

__all__ = ["QUICK", "THRICE", "Seen", "fall_silent", "settled", "subscribed"]

QUICK = WorkerOptions(
    concurrency=4,
    lease=timedelta(seconds=30),  # what will be taken over stops renewing when the test says so
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
        await asyncio.wait_for(running, 60)


async def settled(shop: AsyncBroadcast) -> None:
    """Wait until no subscription owes anything."""
    async with asyncio.timeout(60):
        while any(one.pending or one.lag for one in await shop.subscriptions()):  # noqa: ASYNC110  the server reports to no one
            await asyncio.sleep(0.005)


def fall_silent(raw: Any, shop: AsyncBroadcast, subscription: str, consumer: str | None = None) -> None:
    """Let nothing have been heard for an hour of what the subscription's workers hold, or one of them."""
    stream = shop.keys.stream
    for held in raw.xpending_range(stream, subscription, "-", "+", 1000, consumer):
        entry_id, whose = held["message_id"], held["consumer"]
        ((_, entry),) = raw.xrange(stream, entry_id, entry_id)
        raw.hset(shop.keys.job(entry["jobId"]), "lastActive", 0)
        raw.xclaim(stream, subscription, whose, 0, [entry_id], idle=3_600_000, justid=True)
