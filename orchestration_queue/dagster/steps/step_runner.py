"""Run Dagster's jobs: pass work items to fork servers, enforce their time limits, and report how they ended."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from pydantic import ValidationError

from orchestration_queue._logging import get_logger
from orchestration_queue.dagster.job_health import CRASHED, LOST, STOPPED, last_lines
from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.envelope import INSTANCE, WorkEnvelope, WorkKind
from orchestration_queue.errors import OrchestrationQueueError, PayloadError, UnrecoverableError
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.worker import AsyncActiveJob
from orchestration_queue.worker.forks.fork_pool import Recycling
from orchestration_queue.worker.forks.fork_runner import ForkRunner
from orchestration_queue.worker.forks.fork_server_process import Running
from orchestration_queue.worker.forks.write_fence import FenceSlot
from orchestration_queue.worker.sandbox.supervised import describe_exit

__all__ = ["StepRunner"]

log = get_logger("orchestration_queue.dagster")

_PROGRAM = "orchestration_queue.dagster.steps.fork_server"
_RUN_GRACE_S = 5.0
"""How much longer than its steps a cancelled run may take to end: it waits for them, and reports their ends."""
_PUT_BACK = timedelta(seconds=1)
"""The delay of a job that requires another version of the code."""


class StepRunner(ForkRunner):
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
        super().__init__(_PROGRAM, slots, lease=lease, now_ms=now_ms, revoked=revoked, recycling=recycling, grace=grace)
        self._locations = {location.name: location for location in locations}
        self._code_version = code_version
        self._first_sign_s = first_sign.total_seconds()
        self._foreign: set[str] = set()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Load the code before the first job, and end all processes afterwards.

        Raises:
            UsageError: A code location cannot be loaded.
        """
        async with self.serving(self._locations.values()):
            yield

    def handler(self, name: str) -> Callable[[AsyncActiveJob], Awaitable[dict[str, object]]]:
        """Return the handler of jobs with this name.

        Raises:
            UnrecoverableError: The name is not one of Dagster's jobs.
        """
        if name not in {str(kind) for kind in WorkKind}:
            raise UnrecoverableError(f"A Dagster worker has no handler for {name!r}; give other jobs their own queue.")
        return self._handle

    async def _handle(self, job: AsyncActiveJob) -> dict[str, object]:
        try:
            work = WorkEnvelope.model_validate(job.data)
        except (PayloadError, ValidationError) as error:
            raise UnrecoverableError(f"The job contains no Dagster work item ({type(error).__name__}).") from error
        if work.code_version and work.code_version != self._code_version:
            job.move_to_delayed(_PUT_BACK)
        self._put_back_foreign(job)
        started = time.monotonic()
        with self.fenced(job.record) as slot:
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

    def _find(self, name: str) -> CodeLocation:
        """Return a code location.

        Raises:
            UnrecoverableError: This worker does not have it.
        """
        if (found := self._locations.get(name)) is not None:
            return found
        if len(self._locations) == 1:
            return next(iter(self._locations.values()))  # its name may differ elsewhere
        raise UnrecoverableError(
            f"This worker has no code location {name!r}, only {', '.join(sorted(self._locations))}; set the "
            "executor's queue to one whose workers have it, or add it to this worker."
        )

    async def _report_crash(self, job: AsyncActiveJob, work: WorkEnvelope, slot: FenceSlot, reason: str) -> None:
        """Start a process that reports a run as failed."""
        slot.clear()
        async with self.pool.lend(self._find(work.location), Isolation.SPAWN) as loan:
            running = loan.server.begin(job.data, slot, is_redelivered=False, notice="", crash=reason)
            try:
                # Shielded: cancelling this wait must not cancel the future that the server's report sets.
                await asyncio.shield(running.ended)
            except asyncio.CancelledError:
                await running.stop(0)
                raise

    def _put_back_foreign(self, job: AsyncActiveJob) -> None:
        """Put back jobs of other Dagster instances."""
        theirs = job.record.headers.get(INSTANCE)
        ours = next((str(server.facts["instance"]) for server in self.pool.servers.values()), "")
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
        slot = self.slots[job.id]
        async with self.pool.lend(self._find(work.location), isolation) as loan:
            running = loan.server.begin(
                job.data,
                slot,
                is_redelivered=job.record.stalled_count > 0,
                notice=notice or loan.notice,
                crash="",
            )
            if loan.is_warm and not await self._await_start(running, slot, job, work, started):
                self.pool.distrust(loan.server, "processes that do not start")
                running.has_begun = False
            else:
                await self.end(running, job, work.timeout_ms, started)
            return running

    async def _await_start(
        self, running: Running, slot: FenceSlot, job: AsyncActiveJob, work: WorkEnvelope, started: float
    ) -> bool:
        """Wait until a work item writes its first event; kill it if it does not in time, and return whether it did."""
        try:
            await asyncio.wait({running.ended}, timeout=self._first_sign_s)
        except asyncio.CancelledError:
            await self.stop(running, job, work.timeout_ms, started)
            raise
        if running.ended.done() or slot.has_signed:
            return True
        await running.stop(0)
        return slot.has_signed  # it may have started just before it was killed

    async def stop(self, running: Running, job: AsyncActiveJob, timeout_ms: int | None, started: float) -> None:
        """Stop a work item. It may clean up and report its end to Dagster unless it will run again."""
        await super().stop(running, job, timeout_ms, started)
        if job.id in self.revoked:
            with suppress(OrchestrationQueueError):
                await job.log(STOPPED)  # the job has already failed as revoked

    def grace(self, job: AsyncActiveJob, timeout_ms: int | None, started: float) -> float:
        """Return how long work that must stop may clean up; a run gets longer than its steps."""
        is_run = job.id in self.revoked and job.name != WorkKind.STEP
        return super().grace(job, timeout_ms, started) + (_RUN_GRACE_S if is_run else 0)

    @classmethod
    def _settle(cls, slot: FenceSlot, running: Running) -> dict[str, object]:
        """Return the result of the job of a work item that ended on its own.

        Raises:
            UnrecoverableError: The work item could not report its end to Dagster.
        """
        note, code = slot.note, running.ended.result()
        where = {"host": socket.gethostname(), "pid": int(note.get("pid", 0))}
        if code == 0:
            return {"exit_code": int(note.get("exit_code", 0)), **where}
        cls.kill_left(slot)
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
