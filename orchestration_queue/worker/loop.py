"""Executes the state machine's actions and feeds the results back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import LeaseLostError, OrchestrationQueueError, ServerError, TransportError
from orchestration_queue.options import WorkerOptions, milliseconds
from orchestration_queue.protocol import outcome
from orchestration_queue.protocol.lease import Completion, Failure, Lease, Postponement, Settlement, Suspension
from orchestration_queue.protocol.operations.exchanges import Renewal, Verdict, Why
from orchestration_queue.server.clock import Pauses
from orchestration_queue.worker.events import Announcer, Tallying, WorkerEventType
from orchestration_queue.worker.heartbeat import Heartbeat
from orchestration_queue.worker.machine import Acknowledge, Exchange, Leave, Listen, Machine, Recover, Rest, Step, Watch
from orchestration_queue.worker.observability import about
from orchestration_queue.worker.queue_io import QueueIO
from orchestration_queue.worker.runner import Runner
from orchestration_queue.worker.scheduler_leader import SchedulerLeader

__all__ = ["WorkerLoop"]

log = get_logger("orchestration_queue.worker")

_EARLY_CANCELS = 100
"""Cancelled jobs to remember in case a reply that starts them is on its way."""
_MOMENT_S = 0.02
"""How often to check whether a queue at its global concurrency has room again."""


class WorkerLoop:
    """Carries out the state machine's actions.

    Args:
        machine: The state machine.
        io: Connections to the server.
        runner: Runs the handlers.
        heartbeat: Renews the leases of running jobs.
        leader: Notified when a job ends that a schedule waits for.
        announcer: Emits this worker's events.
        options: The worker's options.
    """

    def __init__(
        self,
        machine: Machine,
        io: QueueIO,
        runner: Runner,
        heartbeat: Heartbeat,
        leader: SchedulerLeader,
        announcer: Announcer,
        options: WorkerOptions,
    ) -> None:
        self._machine = machine
        self._shared = machine.shared
        self._io = io
        self._runner = runner
        self._heartbeat = heartbeat
        self._leader = leader
        self._announce = announcer.emit
        self._block_ms = milliseconds(options.block)
        self.on_due: Callable[[int], object] = lambda _at_ms: None
        """Called with the time, in epoch ms, at which a job postponed here is due."""
        self.on_due_signals: Callable[[Sequence[str]], object] = lambda _signals: None
        """Called with signals to this worker that something is due sooner than workers know."""
        self._jobs: dict[Lease, asyncio.Task[None]] = {}
        """The jobs whose handlers have not ended."""
        self._given_up: set[Lease] = set()
        """Those of them whose tasks were cancelled, and whose handlers clean up."""
        self._beside: set[asyncio.Future[None]] = set()
        self._tallying = Tallying(io, self._begin) if options.record_metrics else None
        runner.emit_step_events = options.emit_step_events
        if self._tallying is not None:
            runner.on_step = self._tallying.count_step
        self._failure: BaseException | None = None
        self._early_cancels: dict[str, int] = {}
        self._pauses = Pauses()
        self._away_since: float | None = None
        self._changed = asyncio.Event()
        self._was_busy = False
        self._was_removed = False
        if self._shared is not None:
            self._shared.subscribe(machine, self._changed.set)

    async def drive(self) -> None:
        """Run until the state machine says to leave."""
        while True:
            step = self._machine.step()
            if (request := self._request(step)) is not None:
                self._begin(request)
            match step:
                # No signal says that another worker's job has ended, which makes room.
                case Rest(briefly=True):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), _MOMENT_S)
                    self._changed.clear()
                    self._machine.look_again()
                case Rest():
                    await self._changed.wait()
                    self._changed.clear()
                case Recover():
                    await self._recover()
                case Leave():
                    return
            if self._failure is not None:
                raise self._failure

    def _request(self, step: Step) -> Coroutine[Any, Any, None] | None:
        """Return what carries out a request to the server; None for an action of the main loop itself."""
        match step:
            case Exchange() as exchange:
                if exchange.want and self._shared is not None:
                    self._shared.changed()  # now it may be another queue's turn
                return self._run_exchange(exchange)
            case Acknowledge(signals, pass_on):
                return self._drop_signals(signals, pass_on=pass_on)
            case Listen(want):
                return self._listen(want)
            case Watch():
                return self._listen(0)
        return None

    def _decide(self) -> None:
        """Wake the state machine after a change, and the workers with which it shares slots."""
        self._changed.set()
        if self._shared is not None:
            self._shared.changed()

    def change(self) -> None:
        """Run the state machine again after a change, even while the worker is blocked on the server."""
        self._decide()
        if self._machine.listening:
            self._begin(self._io.waker.wake_while(lambda: self._machine.listening))

    def give_up_all(self) -> None:
        """Cancel every running job, without an outcome."""
        for lease in self._jobs:
            self._heartbeat.drop(lease)
            self._cancel(lease)
        self._decide()

    @property
    def running(self) -> list[Lease]:
        """The leases of the jobs whose handlers have not ended."""
        return list(self._jobs)

    def is_cancelled(self, job_id: str, at_ms: int) -> bool:
        """Whether a job cancelled at that time runs here. If not, it is cancelled if its start is on the way."""
        for lease in self._jobs:
            if lease.job_id == job_id:
                return lease.taken_ms <= at_ms
        self._early_cancels[job_id] = at_ms
        if len(self._early_cancels) > _EARLY_CANCELS:
            self._early_cancels.pop(next(iter(self._early_cancels)))
        return False

    def cancel(self, job_id: str) -> bool:
        """Cancel a running job, which fails as revoked; return False if it doesn't run here."""
        found = [lease for lease in self._jobs if lease.job_id == job_id]
        for lease in found:
            self._fail_cancelled(lease)
        return bool(found)

    async def end(self) -> None:
        """Cancel everything that runs beside the main loop."""
        self.give_up_all()  # including jobs started by an exchange that was still in progress
        for task in list(self._beside):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._tallying is not None:
            await self._tallying.send()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the main loop, which fails if the coroutine does."""
        task = asyncio.ensure_future(work)
        # The event loop itself keeps only a weak reference to a task.
        self._beside.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Future[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failure = error
        self._decide()

    async def _run_exchange(self, exchange: Exchange) -> None:
        """Make an exchange. If it fails, its contents are sent with the next one."""
        # The lease begins when the server gets the request, so counting from here renews it early, never late.
        asked = time.monotonic()
        try:
            result = await self._io.exchange(exchange)
        except OrchestrationQueueError as error:
            self._report_failure("An exchange with the server failed and will be made again", error)
            self._machine.failed(exchange)
            return
        self._pauses.reset()
        self._report_return()
        self._machine.exchanged(exchange, len(result.started), result.why)
        for lease in result.started:
            self._start(lease, asked)
        for settlement, verdict in zip(exchange.settle, result.verdicts, strict=True):
            self._handle_verdict(settlement, verdict)
        if result.due_ms >= 0:
            self.on_due(result.due_ms)
        self._was_busy = self._was_busy or bool(result.started)
        if self._was_busy and result.why is Why.EMPTY and self._machine.is_quiet:
            self._was_busy = False
            self._announce(WorkerEventType.DRAINED)

    def _report_failure(self, what: str, error: OrchestrationQueueError) -> None:
        """Report a failed call. The next attempt may succeed after a broken connection, but not after a refusal."""
        self._announce(WorkerEventType.ERROR, reason=str(error))
        if isinstance(error, ServerError) and error.code == "NOGROUP":
            self._report_removal(what)
            return
        log.warning("%s: %s", what, error)
        if isinstance(error, TransportError):
            self._pauses.reset()
        if self._away_since is None:
            self._away_since = time.monotonic()

    def _report_removal(self, what: str) -> None:
        """Report once, whatever failed for it, that another client removed the workers' group."""
        if not self._was_removed:
            log.warning(
                "%s: the consumer group of queue %s was removed, as by FLUSHDB, `obliterate` or `unsubscribe`; "
                "this worker creates it again and continues with the jobs added since.",
                what,
                self._io.queue,
            )
        self._was_removed = True

    def _report_return(self) -> None:
        """Report that the server answers again."""
        if self._away_since is not None:
            log.info("The server of queue %s is back after %.1f s", self._io.queue, time.monotonic() - self._away_since)
            self._away_since = None

    def _handle_verdict(self, settlement: Settlement, verdict: Verdict) -> None:
        """Record that the server has an outcome. Until now the job's lease was held."""
        lease = settlement.lease
        self._heartbeat.drop(lease)
        if self._tallying is not None:
            self._tallying.count(settlement, verdict)
        match settlement, verdict:
            case _, Verdict.LOST:
                self._report_lost(lease)
                return
            case Completion(), _:
                if log.isEnabledFor(logging.DEBUG):
                    self._log_completed(lease)
                self._announce(WorkerEventType.COMPLETED, lease.record)
            case Failure(reason=reason), _:
                retries = verdict is Verdict.RETRYING
                if retries:
                    # With the second watcher that the exchange registered, the retry is on time even if one of the
                    # two dies.
                    self.on_due(self._io.clock.now_ms() + settlement.backoff_ms)
                self._announce(WorkerEventType.FAILED, lease.record, reason, will_retry=retries)
            case _:
                if isinstance(settlement, Postponement):
                    self.on_due(settlement.until_ms)
                elif isinstance(settlement, Suspension) and settlement.resumes and settlement.timeout_ms:
                    self.on_due(self._io.clock.now_ms() + settlement.timeout_ms)
                self._announce(WorkerEventType.INTERRUPTED, lease.record)
        if lease.scheduler and verdict in (Verdict.COMPLETED, Verdict.FAILED):
            self._begin(self._continue(lease.scheduler))

    def _log_completed(self, lease: Lease) -> None:
        seconds_taken = (self._io.clock.now_ms() - lease.taken_ms) / 1000
        log.debug(
            "Job %r (%r) of queue %s completed in %.3f s",
            lease.job_id,
            lease.record.name,
            self._io.queue,
            seconds_taken,
            extra=about(self._io.queue, lease.record, outcome="completed", seconds=seconds_taken),
        )

    async def _continue(self, scheduler: str) -> None:
        """Notify a repeat-after-complete schedule that its job has ended."""
        try:
            await self._leader.finished(scheduler)
        except OrchestrationQueueError as error:
            log.error("Schedule %s could not be notified that its job has ended: %s", scheduler, error)

    def _start(self, lease: Lease, asked: float) -> None:
        self._heartbeat.keep(lease, (lease.lock_ms or self._io.defaults.lease_ms) / 1000, asked)
        self._announce(WorkerEventType.ACTIVE, lease.record)
        self._jobs[lease] = asyncio.create_task(self._run(lease))
        # A cancel that is older than this start was meant for an earlier attempt.
        if self._early_cancels and self._early_cancels.pop(lease.job_id, 0) >= lease.taken_ms:
            self._fail_cancelled(lease)

    async def _run(self, lease: Lease) -> None:
        """Run one job under its lease. Its slot is freed in the same step in which its outcome is queued."""
        try:
            await self._runner.run(lease, self._add_outcome, self._given_up)
        except Exception as error:
            # The record is such that no settlement can be built from it: fail this job, and no other.
            log.exception("Job %r of queue %s could not be run", lease.job_id, self._io.queue)
            self._add_outcome(outcome.malformed(lease, outcome.reason_of(error)))
        finally:
            self._free_slot(lease)

    def _free_slot(self, lease: Lease) -> None:
        if self._jobs.pop(lease, None) is not None:
            self._given_up.discard(lease)
            self._machine.finished()
            self._decide()

    def _cancel(self, lease: Lease) -> None:
        """Cancel a running job. One that has not begun yet never runs any code, so it is ended here."""
        task = self._jobs[lease]
        self._given_up.add(lease)
        task.cancel()
        # A task that is cancelled before its first step skips even its `finally`.
        task.add_done_callback(lambda _: self._free_slot(lease))

    def renewed(self, lease: Lease, answer: Renewal) -> None:
        """Stop a running job whose lease the heartbeat found lost, or cancelled."""
        if lease not in self._jobs:
            return
        if answer is Renewal.REVOKED:
            self._fail_cancelled(lease)
        else:
            self._report_lost(lease)
            self._cancel(lease)

    def _fail_cancelled(self, lease: Lease) -> None:
        if lease not in self._given_up:  # a second cancellation would interrupt the handler's cleanup
            self._add_outcome(outcome.cancelled(lease))
            self._cancel(lease)

    def _report_lost(self, lease: Lease) -> None:
        log.warning("%s", LeaseLostError(self._io.queue, lease.job_id))
        self._announce(WorkerEventType.LOST, lease.record)

    def _add_outcome(self, settlement: Settlement) -> None:
        self._machine.add_outcome(settlement)
        self._decide()

    async def _listen(self, want: int) -> None:
        """Block on the server for the next jobs or, with shared slots, for their arrival."""
        io, block_ms = self._io, self._block_ms
        try:
            heard = await (io.listen(want, block_ms) if want else io.watch(block_ms))
            if heard.due:
                self.on_due_signals(heard.due)
            self._machine.delivered(heard.deliveries, heard.signals)
        except OrchestrationQueueError as error:
            self._report_failure("Waiting for jobs was interrupted", error)
            self._machine.listen_failed()
            return
        # Start what was delivered in this task: by the main loop, it would be sent two turns of the event loop later.
        if (request := self._request(self._machine.step())) is not None:
            self._decide()
            await request

    async def _drop_signals(self, signals: Sequence[str], *, pass_on: bool) -> None:
        try:
            await self._io.drop_signals(signals, pass_on=pass_on)
        except OrchestrationQueueError as error:
            self._report_failure("A signal could not be passed on, which will be tried again", error)
            self._machine.drop_failed()

    async def _recover(self) -> None:
        """Recover after an outage, following a pause. If it fails, the next round tries again."""
        await asyncio.sleep(self._pauses.next_s())
        # What is here already is pending on the server too, and must not start a second time.
        held = {lease.job_id for lease in self._jobs} | self._machine.held
        try:
            found = await self._io.recover(held)
            self._machine.recovered(found.deliveries, found.signals)
            self._was_removed = False
            if found.signals:
                self.on_due_signals(())  # one of them may say that something is due
            self._report_return()
        except TransportError:
            pass  # the outage continues, and was reported
        except OrchestrationQueueError as error:
            self._report_failure("Work could not be taken up again after an outage, which will be tried again", error)
