"""What the handlers of forked work items share: fences that follow leases, cancellation, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta

from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker.forks.code import Code
from orchestration_queue.worker.forks.fork_pool import ForkPool, Recycling
from orchestration_queue.worker.forks.fork_server_process import Running
from orchestration_queue.worker.forks.write_fence import FenceSlot, WriteFences, now
from orchestration_queue.worker.interfaces import Middleware
from orchestration_queue.worker.job import AsyncActiveJob

__all__ = ["ForkRunner"]

_CHECK_EVERY_S = 0.25
"""How often to check whether running jobs were revoked. Heartbeats detect it, too, but are rare."""
_OVERDUE_GRACE_S = 4.0
"""Maximum grace after a timeout: the job fails at most 5 s later, and then the next attempt may start."""


class ForkRunner:
    """The part of a worker's handlers that does not depend on what the forks run.

    Args:
        program: The module of the fork servers' program.
        slots: The worker's concurrency.
        lease: The default lease.
        now_ms: Returns the server's time in epoch milliseconds.
        revoked: Stops the revoked ones of these jobs on the worker's loop.
        recycling: When to replace fork servers.
        grace: How long a work item may take to end when it is stopped.
        most: Maximum fork servers; None for no limit.

    Attributes:
        asking: The signals that ask a work item to end, before it is killed.
    """

    asking: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)

    def __init__(
        self,
        program: str,
        slots: int,
        *,
        lease: timedelta,
        now_ms: Callable[[], int],
        revoked: Callable[[Sequence[str]], Awaitable[None]],
        recycling: Recycling,
        grace: timedelta,
        most: int | None = None,
    ) -> None:
        self.middleware: tuple[Middleware, ...] = ()
        self.slots: dict[str, FenceSlot] = {}
        self.revoked: set[str] = set()
        self.grace_s = grace.total_seconds()
        self._program = program
        self._concurrency = slots
        self._usual_lease_s = lease.total_seconds()
        self._now_ms = now_ms
        self._stop_revoked = revoked
        self._recycling = recycling
        self._most = most
        self._fence: WriteFences
        self.pool: ForkPool

    @asynccontextmanager
    async def serving(self, codes: Iterable[Code]) -> AsyncIterator[None]:
        """Load the code before the first job, and end all processes afterwards.

        Raises:
            UsageError: Code cannot be loaded.
        """
        self._fence = WriteFences(self._concurrency)
        self.pool = ForkPool(self._program, self._fence, self._recycling, most=self._most)
        checking = asyncio.create_task(self._check_revoked())
        try:
            await self.pool.start(codes)
            yield
        finally:
            checking.cancel()
            with suppress(asyncio.CancelledError):
                await checking
            await self.pool.aclose()
            self._fence.close()

    @property
    def decisions(self) -> dict[str, str]:
        """The isolation of the work items of each code, and its reason; empty before code is loaded."""
        return self.pool.decisions if hasattr(self, "pool") else {}

    @contextmanager
    def fenced(self, record: JobRecord) -> Iterator[FenceSlot]:
        """Give a job a fence that follows its lease."""
        lease = Lease(record, "")
        deadline = now() + self._lease_s(lease) - (self._now_ms() - lease.taken_ms) / 1000
        with self._fence.slot(deadline) as slot:
            self.slots[record.id] = slot
            try:
                yield slot
            finally:
                del self.slots[record.id]
                self.revoked.discard(record.id)

    def observe_renewal(self, leases: Sequence[Lease], renew: Callable[[], list[Renewal]]) -> list[Renewal]:
        """Renew leases, and extend the write fences of their jobs accordingly."""
        # The lease may have been renewed at any time since the request, so the fence counts from there.
        asked = now()
        answers = renew()
        for lease, answer in zip(leases, answers, strict=True):
            if answer is Renewal.REVOKED:
                self.cancel(lease.job_id)
            elif answer is Renewal.RENEWED and (slot := self.slots.get(lease.job_id)) is not None:
                slot.extend(asked + self._lease_s(lease))
        return answers

    def _lease_s(self, lease: Lease) -> float:
        return lease.lock_ms / 1000 if lease.lock_ms else self._usual_lease_s

    def cancel(self, job_id: str) -> None:
        """Mark a job as canceled, so that its work may clean up when its handler is cancelled."""
        self.revoked.add(job_id)

    async def _check_revoked(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            if running := [job_id for job_id in self.slots if job_id not in self.revoked]:
                await self._stop_revoked(running)

    async def end(self, running: Running, job: AsyncActiveJob, timeout_ms: int | None, started: float) -> None:
        """Wait until a work item ends; stop it when its job is cancelled."""
        try:
            await asyncio.shield(running.ended)
        except asyncio.CancelledError:
            await self.stop(running, job, timeout_ms, started)
            raise

    async def stop(self, running: Running, job: AsyncActiveJob, timeout_ms: int | None, started: float) -> None:
        """Stop a work item. It may clean up and report its end unless it will run again."""
        grace_s = self.grace(job, timeout_ms, started)
        # First, or the fence would end the cleanup together with the lease.
        self.slots[job.id].prolong(grace_s)
        await running.stop(grace_s, self.asking)

    def grace(self, job: AsyncActiveJob, timeout_ms: int | None, started: float) -> float:
        """Return how long work that must stop may clean up; 0 if its job was released to run again."""
        if job.id in self.revoked:
            return self.grace_s
        is_overdue = timeout_ms is not None and time.monotonic() - started >= timeout_ms / 1000
        return min(self.grace_s, _OVERDUE_GRACE_S) if is_overdue else 0

    @staticmethod
    def kill_left(slot: FenceSlot) -> None:
        """Kill what a failed work item has left, in case its fork server is gone, too."""
        with suppress(ProcessLookupError, PermissionError):
            if pid := int(slot.note.get("pid", 0)):
                os.killpg(pid, signal.SIGKILL)
