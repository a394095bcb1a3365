"""Commands to the workers of a queue, wherever they run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from typing import get_args

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client.checks import check_items, check_text
from orchestration_queue.client.values import Deadline
from orchestration_queue.errors import InvalidOptionError, UsageError, WorkerNotFoundError
from orchestration_queue.options import Duration
from orchestration_queue.options.worker import check_concurrency
from orchestration_queue.protocol.operations import worker_registry, worker_signals
from orchestration_queue.protocol.operations.worker_registry import WorkerInfo
from orchestration_queue.protocol.operations.worker_signals import Command, WorkerReply, WorkerVerb

__all__ = ["AsyncWorkerControl"]

_DEFAULT_TIMEOUT = timedelta(seconds=2)


class AsyncWorkerControl(AsyncQueueClient):
    """Lists a queue's workers and sends them commands."""

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are alive, the oldest first. Scans all keys of the queue's server.

        The jobs that they run are as last reported: every 15 seconds, or every half of a shorter ``stalled_interval``,
        and whenever :meth:`control_workers` reaches them. Progress and lease of these jobs are current.
        """
        return await self._connection.follow(worker_registry.workers_with_jobs(self.keys))

    async def control_workers(
        self,
        verb: WorkerVerb,
        workers: Iterable[str] | None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration = _DEFAULT_TIMEOUT,  # noqa: ASYNC109  both faces have it
    ) -> list[WorkerReply]:
        """Send a command to workers of this library, on any machine, and return their replies.

        ``ping`` asks whether they are alive. ``pause`` stops them from taking jobs until ``resume``; active jobs
        continue, and no other starts after the reply. ``stop`` drains them, like SIGTERM. ``concurrency`` changes how
        many jobs they run at a time. None of this survives a restart of the worker process.

        Args:
            verb: ``ping``, ``pause``, ``resume``, ``stop`` or ``concurrency``.
            workers: The ids of the workers; None for all of the queue.
            concurrency: With ``concurrency``: how many jobs at a time.
            timeout: How long to wait for replies, a duration or seconds. A worker that replies later still obeys.

        Returns:
            A reply for each worker; ``answered`` is False for one that didn't reply in time, and for Node workers.

        Raises:
            UsageError: There is no such verb, or ``concurrency`` is missing, out of range, or unexpected.
            WorkerNotFoundError: No worker with that id is alive; no command was sent.
        """
        slots = _check_slots(verb, concurrency)
        named = None if workers is None else _check_ids(workers)
        deadline = Deadline(timeout)
        ids = await self._alive(named)
        replies = {worker: WorkerReply(worker) for worker in ids}
        if not ids:
            return []
        command = Command(secrets.token_hex(8), verb, tuple(ids), slots)
        sent = time.monotonic()
        await self._connection.pipeline(worker_signals.send(self.keys, command), atomic=True)
        # From the beginning: workers may have replied before the first read.
        after, missing = "0-0", set(ids)
        while missing and not deadline.has_passed:
            block_ms = max(1, round(deadline.left * 1000))
            answers = worker_signals.read_replies(self.keys, command, after, block_ms)
            after, received = await self._connection.look(answers)
            for reply in received:
                replies[reply.worker] = replace(reply, latency=timedelta(seconds=time.monotonic() - sent))
                missing.discard(reply.worker)
        return list(replies.values())

    async def _alive(self, named: list[str] | None) -> list[str]:
        """Return the ids of all workers, or those that were named, all of which must be alive."""
        if named is None:
            return [worker.id for worker in await self._connection.follow(worker_registry.workers(self.keys))]
        if named and (lost := await self._connection.look(worker_signals.unregistered_of(self.keys, named))):
            close = get_close_matches(lost[0], [worker.id for worker in await self.workers()], n=1)
            raise WorkerNotFoundError(self.name, lost[0], close[0] if close else None)
        return named


def _check_ids(workers: Iterable[str]) -> list[str]:
    return [check_text(worker, "workers") for worker in dict.fromkeys(check_items(workers, str, "workers"))]


def _check_slots(verb: str, concurrency: int | None) -> int | None:
    if verb not in get_args(WorkerVerb):
        raise UsageError(f"`verb` must be one of {', '.join(get_args(WorkerVerb))}; got {verb!r}.")
    if verb != "concurrency":
        if concurrency is not None:
            raise UsageError(f"`concurrency` is only for the verb 'concurrency', got it with {verb!r}; leave it out.")
        return None
    if concurrency is None:
        raise InvalidOptionError("The verb 'concurrency' needs a number of jobs; pass `concurrency=4`.")
    return check_concurrency(concurrency)
