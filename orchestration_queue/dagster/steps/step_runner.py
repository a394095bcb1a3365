"""Runs Dagster's jobs: takes a work item to a fork server, enforces its time, and reports how it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from pydantic import ValidationError

from orchestration_queue.dagster.job_health import CRASHED, LOST, STOPPED, last_lines
from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.envelope import INSTANCE, Isolation, WorkEnvelope, WorkKind
from orchestration_queue.dagster.steps.fork_pool import ForkPool, Recycling
from orchestration_queue.dagster.steps.fork_server_process import Running
from orchestration_queue.dagster.steps.write_fence import FenceSlot, WriteFences, now
from orchestration_queue.errors import OrchestrationQueueError, PayloadError, UnrecoverableError
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker import AsyncActiveJob, Middleware
from orchestration_queue.worker.sandbox.supervised import describe_exit

__all__ = ["StepRunner"]

log = logging.getLogger("orchestration_queue.dagster")

_LOOK_EVERY_S = 0.25
"""How often to look whether running jobs were revoked. The heartbeat learns it too, but rarely."""
_OVERDUE_GRACE_S = 4.0
"""The most for a work whose time is over: its end is told 5 s later at the latest, and the next attempt may begin."""
_PUT_BACK = timedelta(seconds=1)
"""How long a job rests that needs another version of the code, before the next worker sees it."""


class StepRunner:
    """The handlers of Dagster's jobs and what they need while the worker runs.

    Args:
        locations: The code locations this worker serves.
        slots: The worker's concurrency.
        lease: The usual lease.
        now_ms: The server's time, in epoch milliseconds.
        revoked: Which of these jobs were revoked, asked and stopped on the worker's loop.
        recycling: When fork servers are replaced.
        grace: How long a work item may take to end when it is stopped.
        code_version: The code version that work items must want, if they want any.
        first_sign: How long a warm process may take to write its first event.
    """

    def __init__(
        self,
        locations: Sequence[CodeLocation],
        slots: int,
        *,
        lease: timedelta,
        now_ms: Callable[[], int],
        revoked: Callable[[Sequence[str]], Awaitable[None]],
        recycling: Recycling,
        grace: timedelta,
        code_version: str,
        first_sign: timedelta,
    ) -> None:
        self.middleware: tuple[Middleware, ...] = ()
        self._locations = locations
        self._concurrency = slots
        self._usual_lease_s = lease.total_seconds()
        self._now_ms = now_ms
        self._look_for_revoked = revoked
        self._recycling = recycling
        self._grace_s = grace.total_seconds()
        self._code_version = code_version
        self._first_sign_s = first_sign.total_seconds()
        self._slots: dict[str, FenceSlot] = {}
        self._revoked: set[str] = set()
        self._foreign: set[str] = set()
        self._fence: WriteFences
        self._pool: ForkPool

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Load the code before the first job comes, and leave no process behind.

        Raises:
            UsageError: A code location cannot be loaded.
        """
        self._fence = WriteFences(self._concurrency)
        self._pool = ForkPool(self._locations, self._fence, self._recycling)
        looking = asyncio.create_task(self._look())
        try:
            await self._pool.start()
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
            await self._pool.aclose()
            self._fence.close()

    @property
    def decisions(self) -> dict[str, str]:
        """Return how the work items of each code location are isolated, and why; none before the code is loaded."""
        return self._pool.decisions if hasattr(self, "_pool") else {}

    def handler(self, name: str) -> Callable[[AsyncActiveJob], Awaitable[dict[str, object]]]:
        """Return the handler of jobs of this name.

        Raises:
            UnrecoverableError: They are none of Dagster's.
        """
        if name not in {str(kind) for kind in WorkKind}:
            raise UnrecoverableError(f"A Dagster worker has no handler for {name!r}; give other jobs their own queue.")
        return self._do

    def observe_renewal(self, leases: Sequence[Lease], renew: Callable[[], list[Renewal]]) -> list[Renewal]:
        """Let the work of jobs write for as long as their renewed leases last."""
        asked = now()
        answers = renew()
        for lease, answer in zip(leases, answers, strict=True):
            if answer is Renewal.REVOKED:
                self.cancel(lease.job_id)
            elif answer is Renewal.RENEWED and (slot := self._slots.get(lease.job_id)) is not None:
                slot.extend(asked + self._lease_s(lease))
        return answers

    def _lease_s(self, lease: Lease) -> float:
        return lease.lock_ms / 1000 if lease.lock_ms else self._usual_lease_s

    def _first_deadline(self, record: JobRecord) -> float:
        """Return when the lease that a job started with ends, unless it is renewed."""
        lease = Lease(record, "")
        return now() + self._lease_s(lease) - (self._now_ms() - lease.taken_ms) / 1000

    def cancel(self, job_id: str) -> None:
        """Note that the job was canceled: when its handler is cancelled now, its work may clean up."""
        self._revoked.add(job_id)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if running := [job_id for job_id in self._slots if job_id not in self._revoked]:
                await self._look_for_revoked(running)

    async def _do(self, job: AsyncActiveJob) -> dict[str, object]:
        try:
            work = WorkEnvelope.model_validate(job.data)
        except (PayloadError, ValidationError) as error:
            raise UnrecoverableError(f"The job contains no Dagster work item ({type(error).__name__}).") from error
        if work.code_version and work.code_version != self._code_version:
            job.move_to_delayed(_PUT_BACK)
        self._put_back_foreign(job)
        is_redelivered = job.record.stalled_count > 0
        if is_redelivered and job.name == WorkKind.STEP:
            # Its events may be half written. Dagster counts attempts, and starts the next one under another id.
            raise UnrecoverableError(f"{LOST}the worker that had begun it did not renew its lease.")
        started = time.monotonic()
        with self._fence.slot(self._first_deadline(job.record)) as slot:
            self._slots[job.id] = slot
            try:
                running = await self._run(job, work, work.isolation, started)
                if not running.has_begun:
                    notice = (
                        f"The process did not begin within {self._first_sign_s:g} s and was killed; this is another "
                        "attempt in a new process. Pass `isolation: spawn` if the code cannot be forked."
                    )
                    log.warning("Job %s: %s", job.id, notice)
                    slot.clear()
                    running = await self._run(job, work, Isolation.SPAWN, started, notice)
                try:
                    return self._settle(slot, running)
                except UnrecoverableError as error:
                    if job.name != WorkKind.STEP:  # of a step, its run takes care
                        await self._report_crash(job, work, slot, str(error))
                    raise
            finally:
                del self._slots[job.id]
                self._revoked.discard(job.id)

    async def _report_crash(self, job: AsyncActiveJob, work: WorkEnvelope, slot: FenceSlot, reason: str) -> None:
        """Have a new process report that a run has failed."""
        slot.clear()
        async with self._pool.lend(work.location, Isolation.SPAWN) as loan:
            running = loan.server.begin(job.data, slot, is_redelivered=False, crash=reason)
            try:
                await asyncio.shield(running.ended)
            except asyncio.CancelledError:
                await running.stop(0)
                raise

    def _put_back_foreign(self, job: AsyncActiveJob) -> None:
        """Leave the jobs of other Dagster instances to their own workers."""
        theirs, ours = job.record.headers.get(INSTANCE), self._pool.instance
        if theirs and ours and theirs != ours:
            if theirs not in self._foreign:
                log.warning(
                    "Jobs of another Dagster instance (%s) arrive on this queue, and are put back for its own workers; "
                    "give each instance a queue or a prefix of its own.",
                    theirs,
                )
            self._foreign.add(theirs)
            job.move_to_delayed(_PUT_BACK)

    async def _run(
        self, job: AsyncActiveJob, work: WorkEnvelope, isolation: Isolation, started: float, notice: str = ""
    ) -> Running:
        """Run a work item to its end, or kill it if a warm process does not begin with it in time."""
        slot = self._slots[job.id]
        async with self._pool.lend(work.location, isolation) as loan:
            running = loan.server.begin(
                job.data, slot, is_redelivered=job.record.stalled_count > 0, notice=notice or loan.notice
            )
            if loan.is_warm and not await self._begins(running, slot, job, work, started):
                self._pool.distrust(loan.server, "processes that do not begin")
                running.has_begun = False
            else:
                await self._end(running, job, work, started)
            return running

    async def _begins(
        self, running: Running, slot: FenceSlot, job: AsyncActiveJob, work: WorkEnvelope, started: float
    ) -> bool:
        """Return whether a work item writes its first event in time; kill it if not."""
        try:
            await asyncio.wait({running.ended}, timeout=self._first_sign_s)
        except asyncio.CancelledError:
            await self._stop(running, job, work, started)
            raise
        if running.ended.done() or slot.has_signed:
            return True
        await running.stop(0)
        return slot.has_signed  # it may have begun a moment before it was killed

    async def _end(self, running: Running, job: AsyncActiveJob, work: WorkEnvelope, started: float) -> None:
        """Wait for the end of a work item; stop it when its job is cancelled."""
        try:
            await asyncio.shield(running.ended)
        except asyncio.CancelledError:
            await self._stop(running, job, work, started)
            raise

    async def _stop(self, running: Running, job: AsyncActiveJob, work: WorkEnvelope, started: float) -> None:
        """Stop a work item. It may clean up and report its end to Dagster only if that is meant to be its end."""
        grace_s = self._grace_of(job.id, work, started)
        self._slots[job.id].prolong(grace_s)
        await running.stop(grace_s)
        if job.id in self._revoked:
            with suppress(OrchestrationQueueError):
                await job.log(STOPPED)  # its job failed as revoked before

    def _grace_of(self, job_id: str, work: WorkEnvelope, started: float) -> float:
        """How long work that must stop may clean up: not at all when it was released to be run again."""
        if job_id in self._revoked:
            return self._grace_s
        is_overdue = work.timeout_ms is not None and time.monotonic() - started >= work.timeout_ms / 1000
        return min(self._grace_s, _OVERDUE_GRACE_S) if is_overdue else 0

    @staticmethod
    def _settle(slot: FenceSlot, running: Running) -> dict[str, object]:
        """Return the result of the job of a work item that ended by itself.

        Raises:
            UnrecoverableError: It could not report its end to Dagster.
        """
        note, code = slot.note, running.ended.result()
        where = {"host": socket.gethostname(), "pid": int(note.get("pid", 0))}
        if code == 0:
            return {"exit_code": int(note.get("exit_code", 0)), **where}
        with suppress(ProcessLookupError, PermissionError):
            if where["pid"]:
                os.killpg(int(note["pid"]), signal.SIGKILL)  # its children, in case its fork server is gone too
        if "reason" in note:
            raise UnrecoverableError(f"Dagster could not run it: {note['reason']}")
        words = last_lines(note)
        raise UnrecoverableError(
            f"{LOST if running.is_lost else CRASHED}its process ({where['pid']} on {where['host']}) "
            + describe_exit(code)
            + (f"; the end of its standard error:\n{words}" if words else ".")
        )
