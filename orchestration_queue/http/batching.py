"""Jobs that concurrent requests add to one queue are combined: one exchange at a time, with all waiting jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import additions
from orchestration_queue.protocol.operations.additions import Added, NewJob, Outcome
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AddBatcher", "add_each"]


async def add_each(connection: AsyncConnection, keys: QueueKeys, jobs: Sequence[NewJob]) -> list[Outcome]:
    """Add many jobs, 100 to a call; a job that is refused hides none of the others.

    Where the server refuses a whole call, because it is full, for instance, the jobs behind it are not sent.
    """
    portions = list(additions.portions(jobs))
    at_ms = now_ms()
    if len(jobs) == 1 or not all(job.is_plain for job in jobs):
        return [one for some in portions for one in await _add_singly(connection, keys, some, at_ms)]
    calls = ([additions.add_many(keys, some, at_ms).call, *additions.waking(keys, some, at_ms)] for some in portions)
    answers = await connection.pipelines(calls)  # each is made while the server works on the one before
    outcomes: list[Outcome] = []
    for some, (reply, *_) in zip(portions, answers, strict=False):
        is_refused = isinstance(reply, ServerError)
        outcomes += [reply] * len(some) if is_refused else additions.read_each(keys, some, reply)
    return outcomes + outcomes[-1:] * (len(jobs) - len(outcomes))


async def _add_singly(
    connection: AsyncConnection, keys: QueueKeys, jobs: Sequence[NewJob], at_ms: int
) -> list[Outcome]:
    calls = [additions.add(keys, job, at_ms).call for job in jobs]
    replies = await connection.pipeline([*calls, *additions.waking(keys, jobs, at_ms)])
    return additions.read_each(keys, jobs, replies[: len(jobs)])


class AddBatcher:
    """Adds the jobs of one queue.

    Args:
        connection: The connection.
        keys: The queue.
    """

    def __init__(self, connection: AsyncConnection, keys: QueueKeys) -> None:
        self._connection, self._keys = connection, keys
        self._waiting: list[tuple[NewJob, asyncio.Future[Added]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, job: NewJob) -> Added:
        """Add one job.

        Raises:
            InvalidOptionError: The server refused its options.
            ServerError: The server refused it.
            TransportError: The server could not be reached.
        """
        future: asyncio.Future[Added] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())
        return await future

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                outcomes: Sequence[Added | Exception] = await add_each(
                    self._connection, self._keys, [job for job, _ in batch]
                )
            except Exception as error:
                outcomes = [error] * len(batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue  # its request was cancelled; the job is added anyway
                if isinstance(outcome, Added):
                    future.set_result(outcome)
                else:
                    future.set_exception(outcome)
        self._task = None
