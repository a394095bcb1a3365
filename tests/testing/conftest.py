"""What tests of the testing package share: tasks with something to go wrong in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestration_queue import AsyncActiveJob, Tasks


@dataclass
class Workshop:
    """Tasks, and what they have done."""

    tasks: Tasks = field(default_factory=Tasks)
    ran: list[Any] = field(default_factory=list)


@pytest.fixture
def workshop() -> Workshop:
    """Tasks named ``double`` (a plain function), ``note`` (a coroutine), ``fail`` and ``succeed_on``."""
    shop = Workshop()

    @shop.tasks.task
    def double(n: int) -> int:
        shop.ran.append(n)
        return 2 * n

    @shop.tasks.task
    async def note(text: str = "noted") -> None:
        shop.ran.append(text)

    @shop.tasks.task
    def fail(why: str) -> None:
        raise LookupError(why)

    @shop.tasks.task
    async def succeed_on(attempt: int, job: AsyncActiveJob) -> str:
        shop.ran.append(job.attempt)
        if job.attempt < attempt:
            raise ConnectionError(f"attempt {job.attempt} failed")
        return "at last"

    return shop
