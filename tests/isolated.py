"""Tasks that run in a process of their own, at the top level of a module, where that process finds them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from orchestration_queue.tasks import Depends, Tasks
from orchestration_queue.worker import ActiveJob

__all__ = ["double", "tasks"]

tasks = Tasks()


async def factor(job: ActiveJob = Depends(ActiveJob)) -> AsyncIterator[int]:
    yield 2


def process() -> int:
    return os.getpid()


@tasks.task(isolation="process")
def double(job: ActiveJob, n: int, process: int = Depends(process)) -> list[int]:
    job.update_progress(n)
    return [n * 2, process]


@tasks.task(isolation="process")
async def multiply(n: int, factor: int = Depends(factor)) -> int:
    return n * factor
