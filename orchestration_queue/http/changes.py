"""What routes and the console do to jobs, one or many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orchestration_queue.client import AsyncJob
from orchestration_queue.errors import StateError

__all__ = ["MOST_CHANGED", "change_job", "change_jobs"]

MOST_CHANGED = 1000
"""Jobs that one request changes at most."""
_AT_ONCE = 50


async def change_job(job: AsyncJob, verb: str, to: str = "") -> bool:
    """Retry, cancel, promote, move or remove a job; returns whether that changed anything.

    Args:
        job: The job, as it was read.
        verb: What to do.
        to: With ``move``: the other queue.

    Raises:
        StateError: It is in a state that does not allow it, or gone.
        UsageError: It cannot be moved to that queue.
    """
    match verb:
        case "remove":
            return await job.remove()
        case "retry":
            await job.retry()
        case "promote":
            await job.promote()
        case "move":
            await job.move(to)
        case "cancel" if job.record.is_finished:
            return False
        case "cancel":
            await job.cancel()
        case _:
            raise ValueError(verb)
    return True


async def change_jobs(jobs: Iterable[AsyncJob], verb: str, to: str = "") -> int:
    """Do the same to many jobs, and return how many changed; those that have moved on meanwhile stay as they are."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def change(job: AsyncJob) -> bool:
        async with at_once:
            try:
                return await change_job(job, verb, to)
            except StateError:
                return False  # it is in another state, or gone

    return sum(await asyncio.gather(*map(change, jobs)))
