"""Evaluate rules in tests, and wait for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from orchestration_queue.alerts import AlertEvaluator, read_receivers
from orchestration_queue.client import AsyncAlerts
from orchestration_queue.worker import ActiveJob

__all__ = [
    "evaluated_again",
    "evaluating",
    "eventually",
    "fails",
    "nothing",
    "wait_until_evaluated",
    "wait_until_state",
]


@asynccontextmanager
async def evaluating(url: str, **receivers: str) -> AsyncIterator[AlertEvaluator]:
    """Evaluate rules until the block ends."""
    variables = {f"OQ_ALERT_RECEIVER_{name.upper()}": value for name, value in receivers.items()}
    found = AlertEvaluator(read_receivers(variables), url=url, interval=0.02)
    running = asyncio.ensure_future(found.run())
    try:
        yield found
    finally:
        found.stop()
        await asyncio.wait_for(running, 60)


async def nothing(job: ActiveJob) -> None:
    """A handler."""


async def fails(job: ActiveJob) -> None:
    raise ValueError("as told")


async def eventually(is_so: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Ask again until it is so."""
    async with asyncio.timeout(60):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.01)


async def wait_until_state(job: Any, state: str) -> None:
    async def is_so() -> bool:
        return bool(await job.read_state() == state)

    await eventually(is_so)


async def wait_until_evaluated(alerts: AsyncAlerts) -> None:
    async def has_evaluated() -> bool:
        found = await alerts.evaluator()
        return found is not None and found.evaluated_ms > 0 and not found.error

    await eventually(has_evaluated)


async def evaluated_again(alerts: AsyncAlerts) -> None:
    """Return after an evaluation that has begun since."""
    found = await alerts.evaluator()
    assert found is not None

    async def is_later() -> bool:
        now = await alerts.evaluator()
        return now is not None and now.evaluated_ms > found.evaluated_ms + 100

    await eventually(is_later)
