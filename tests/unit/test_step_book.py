"""Names of steps are reserved together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration_queue.protocol.operations.steps import StepKind
from orchestration_queue.worker.steps import StepBook


class Slow:
    """A job whose stored results don't arrive."""

    id, version, should_stop = "1", None, False
    record = SimpleNamespace(fields={"steps": "1"})

    def __init__(self) -> None:
        self.reads = asyncio.Event()

    async def _read_steps(self) -> list[Any]:
        return [SimpleNamespace(name="b", number=1, size=1, kind=StepKind.CALLS)]

    async def _read_step_results(self, _names: Sequence[str]) -> list[str]:
        self.reads.set()
        await asyncio.Event().wait()
        return []


async def test_a_cancelled_gathering_releases_its_names() -> None:
    job: Any = Slow()
    book = StepBook(job)
    gathering = asyncio.create_task(book.find_all(["a", "b"], StepKind.CALLS))
    async with asyncio.timeout(60):
        await job.reads.wait()
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    assert await book.find("a", StepKind.CALLS) is None
