"""Run Dagster's jobs: pass work items to fork servers, enforce their time limits, and report how they ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from pydantic import ValidationError

from orchestration_queue._logging import get_logger
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

log = get_logger("orchestration_queue.dagster")

_CHECK_EVERY_S = 0.25
"""How often to check whether running jobs were revoked. Heartbeats detect it, too, but are rare."""
_OVERDUE_GRACE_S = 4.0
"""Maximum grace after a timeout: the job fails at most 5 s later, and then the next attempt may start."""
_RUN_GRACE_S = 5.0
"""How much longer than its steps a cancelled run may take to end: it waits for them, and reports their ends."""
_PUT_BACK = timedelta(seconds=1)
"""The delay of a job that requires another version of the code."""


class StepRunner:
    """The handlers of Dagster's jobs and what they need while the worker runs.

    Args:
        locations: The code locations that this worker serves.
        slots: The worker's concurrency.
        lease: The default lease.
        now_ms: Returns the server's time in epoch milliseconds.
        revoked: Stops the revoked ones of these jobs on the worker's loop.
        recycling: When to replace fork servers.
        grace: How long a work item may take to end when it is stopped.
        code_version: The version of the worker's code; work items that require another one are put back.
        first_sign: How long a forked process may take to write its first event.
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
        self._stop_revoked = revoked
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
        """Load the code before the first job, and end all processes afterwards.

        Raises:
            UsageError: A code location cannot be loaded.
        """
        self._fence = WriteFences(self._concurrency)
        self._pool = ForkPool(self._locations, self._fence, self._recycling)
        checking = asyncio.create_task(self._check_revoked())
        try:
            await self._pool.start()
            yield
        finally:
            checking.cancel()
            with suppress(asyncio.CancelledError):
                await checking
            await self._pool.aclose()
            self._fence.close()

    @property
    def decisions(self) -> dict[str, str]:
        """The isolation of the work items of each code location, and its reason; empty before the code is loaded."""
        return self._pool.decisions if hasattr(self, "_pool") else {}

    def handler(self, name: str) -> Callable[[AsyncActiveJob], Awaitable[dict[str, object]]]:
        """Return the handler of jobs with this name.

        Raises:
            UnrecoverableError: The name is not one of Dagster's jobs.
        """
        if name not in {str(kind) for kind in WorkKind}:
            raise UnrecoverableError(f"A Dagster worker has no handler for {name!r}; give other jobs their own queue.")
        return self._handle

    def observe_renewal(self, leases: Sequence[Lease], renew: Callable[[], list[Renewal]]) -> list[Renewal]:
        """Renew leases, and extend the write fences of their jobs accordingly."""
        # The lease may have been renewed at any time since the request, so the fence counts from there.
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
        """Return when the first lease of a job expires."""
        lease = Lease(record, "")
        return now() + self._lease_s(lease) - (self._now_ms() - lease.taken_ms) / 1000

    def cancel(self, job_id: str) -> None:
        """Mark a job as canceled, so that its work may clean up when its handler is cancelled."""
        self._revoked.add(job_id)

    async def _check_revoked(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            if running := [job_id for job_id in self._slots if job_id not in self._revoked]:
                await self._stop_revoked(running)

    async def _handle(self, job: AsyncActiveJob) -> dict[str, object]:
        try:
            work = WorkEnvelope.model_validate(job.data)
        except (PayloadError, ValidationError) as error:
            raise UnrecoverableError(f"The job contains no Dagster work item ({type(error).__name__}).") from error
        if work.code_version and work.code_version != self._code_version:
            job.move_to_delayed(_PUT_BACK)
        self._put_back_foreign(job)
        started = time.monotonic()
        with self._fence.slot(self._first_deadline(job.record)) as slot:
            self._slots[job.id] = slot
            try:
                running = await self._run(job, work, work.isolation, started)
                if not running.has_begun:
                    notice = (
                        f"The process did not start within {self._first_sign_s:g} s and was killed; this is another "
                        "attempt in a new process. Pass `isolation: spawn` if the code cannot be forked."
                    )
                    log.warning("Job %s: %s", job.id, notice)
                    slot.clear()
                    running = await self._run(job, work, Isolation.SPAWN, started, notice)
                try:
                    return self._settle(slot, running)
                except UnrecoverableError as error:
                    if job.name != WorkKind.STEP:  # the run handles the crash of a step
                        await self._report_crash(job, work, slot, str(error))
                    raise
            finally:
                del self._slots[job.id]
                self._revoked.discard(job.id)

    async def _report_crash(self, job: AsyncActiveJob, work: WorkEnvelope, slot: FenceSlot, reason: str) -> None:
        """Start a process that reports a run as failed."""
        slot.clear()
        async with self._pool.lend(work.location, Isolation.SPAWN) as loan:
            running = loan.server.begin(job.data, slot, is_redelivered=False, crash=reason)
            try:
                # Shielded: cancelling this wait must not cancel the future that the server's report sets.
                await asyncio.shield(running.ended)
            except asyncio.CancelledError:
                await running.stop(0)
                raise

    def _put_back_foreign(self, job: AsyncActiveJob) -> None:
        """Put back jobs of other Dagster instances."""
        theirs, ours = job.record.headers.get(INSTANCE), self._pool.instance
        if theirs and ours and theirs != ours:
            if theirs not in self._foreign:
                log.warning(
                    "Jobs of another Dagster instance (%s) arrive on this queue and are put back for its own workers; "
                    "configure a different queue or prefix for each instance.",
                    theirs,
                )
            self._foreign.add(theirs)
            job.move_to_delayed(_PUT_BACK)

    async def _run(
        self, job: AsyncActiveJob, work: WorkEnvelope, isolation: Isolation, started: float, notice: str = ""
    ) -> Running:
        """Run a work item, or kill it if a forked process does not start it in time."""
        slot = self._slots[job.id]
        async with self._pool.lend(work.location, isolation) as loan:
            running = loan.server.begin(
                job.data, slot, is_redelivered=job.record.stalled_count > 0, notice=notice or loan.notice
            )
            if loan.is_warm and not await self._await_start(running, slot, job, work, started):
                self._pool.distrust(loan.server, "processes that do not start")
                running.has_begun = False
            else:
                await self._end(running, job, work, started)
            return running

    async def _await_start(
        self, running: Running, slot: FenceSlot, job: AsyncActiveJob, work: WorkEnvelope, started: float
    ) -> bool:
        """Wait until a work item writes its first event; kill it if it does not in time, and return whether it did."""
        try:
            await asyncio.wait({running.ended}, timeout=self._first_sign_s)
        except asyncio.CancelledError:
            await self._stop(running, job, work, started)
            raise
        if running.ended.done() or slot.has_signed:
            return True
        await running.stop(0)
        return slot.has_signed  # it may have started just before it was killed

    async def _end(self, running: Running, job: AsyncActiveJob, work: WorkEnvelope, started: float) -> None:
        """Wait until a work item ends; stop it when its job is cancelled."""
        try:
            await asyncio.shield(running.ended)
        except asyncio.CancelledError:
            await self._stop(running, job, work, started)
            raise

    async def _stop(self, running: Running, job: AsyncActiveJob, work: WorkEnvelope, started: float) -> None:
        """Stop a work item. It may clean up and report its end to Dagster unless it will run again."""
        grace_s = self._grace(job, work, started)
        # First, or the fence would end the cleanup together with the lease.
        self._slots[job.id].prolong(grace_s)
        await running.stop(grace_s)
        if job.id in self._revoked:
            with suppress(OrchestrationQueueError):
                await job.log(STOPPED)  # the job has already failed as revoked

    def _grace(self, job: AsyncActiveJob, work: WorkEnvelope, started: float) -> float:
        """Return how long work that must stop may clean up; 0 if its job was released to run again."""
        if job.id in self._revoked:
            return self._grace_s + (0 if job.name == WorkKind.STEP else _RUN_GRACE_S)
        is_overdue = work.timeout_ms is not None and time.monotonic() - started >= work.timeout_ms / 1000
        return min(self._grace_s, _OVERDUE_GRACE_S) if is_overdue else 0

    @staticmethod
    def _settle(slot: FenceSlot, running: Running) -> dict[str, object]:
        """Return the result of the job of a work item that ended on its own.

        Raises:
            UnrecoverableError: The work item could not report its end to Dagster.
        """
        note, code = slot.note, running.ended.result()
        where = {"host": socket.gethostname(), "pid": int(note.get("pid", 0))}
        if code == 0:
            return {"exit_code": int(note.get("exit_code", 0)), **where}
        with suppress(ProcessLookupError, PermissionError):
            if where["pid"]:
                os.killpg(int(note["pid"]), signal.SIGKILL)  # its children, in case its fork server is gone too
        if "lost" in note:
            raise UnrecoverableError(f"{LOST}{note['lost']}")
        if "reason" in note:
            raise UnrecoverableError(f"Dagster could not run it: {note['reason']}")
        words = last_lines(note)
        raise UnrecoverableError(
            f"{LOST if running.is_lost else CRASHED}its process ({where['pid']} on {where['host']}) "
            + describe_exit(code)
            + (f"; the end of its standard error:\n{words}" if words else ".")
        )
