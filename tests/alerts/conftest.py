"""What tests of alerts share: a queue, rules, a receiver, and an evaluator that hurries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import redis

from orchestration_queue.alerts import evaluator
from orchestration_queue.client import AsyncAlerts, AsyncQueue
from tests.alerts.receivers import Hook, hook


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate and send again a moment later."""
    monkeypatch.setattr(evaluator, "_TURN_S", 0.02)
    monkeypatch.setattr(evaluator, "_SHORTEST", timedelta(0))
    monkeypatch.setattr(evaluator, "_NAMES_S", 0.0)
    monkeypatch.setattr(evaluator, "_NAMES_REST", 0)
    monkeypatch.setattr(evaluator, "_FIRST_PAUSE_MS", 20)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue
    raw.flushall()


@pytest.fixture
async def alerts(server_url: str, queue: AsyncQueue) -> AsyncIterator[AsyncAlerts]:
    async with AsyncAlerts(url=server_url) as alerts:
        yield alerts


@pytest.fixture
async def ops() -> AsyncIterator[Hook]:
    async with hook() as ops:
        yield ops
