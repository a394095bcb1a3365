"""The worker: takes jobs of one queue, runs their handlers, and never leaves a job in doubt."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from orchestration_queue.errors import LeaseLostError, OrchestrationQueueError
from orchestration_queue.options import WorkerOptions, milliseconds
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.lease import Failure, Lease, Settlement
from orchestration_queue.protocol.operations.working import Renewal, Verdict
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.chores import Chores
from orchestration_queue.worker.heartbeat import Heartbeat
from orchestration_queue.worker.leader import Leader
from orchestration_queue.worker.line import Line
from orchestration_queue.worker.machine import Exchange, Leave, Listen, Machine, Phase, Recover, Rest
from orchestration_queue.worker.runner import Handler, Router, Runner

__all__ = ["Worker"]

log = logging.getLogger("orchestration_queue.worker")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_REGISTERED_MS = 3000
"""The shortest life of a registration: it is renewed every second at the most."""
_SOON_S = 0.002
_MOMENT_S = 0.02
"""Between two questions whether a queue at its global concurrency has room again."""


class Worker:
    """Takes jobs of one queue and runs them.

    A handler returns the job's result, or raises to fail the attempt. It may be a coroutine function, which runs
    on the event loop, or a plain function, which runs in a thread. Delivery is at least once: a job runs again
    when its worker dies, or stops renewing its lease, before the outcome was told.

    Args:
        queue: The queue's name.
        handler: One handler for all jobs, or a router such as :class:`orchestration_queue.tasks.Tasks`.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        options: Concurrency, lease and intervals.
        prefix: First part of every key.

    Example:
        >>> async def greet(job: AsyncActiveJob) -> str:
        ...     return f"Hello, {job.data['name']}"
        >>> asyncio.run(Worker("greetings", greet).run())  # doctest: +SKIP
    """

    def __init__(
        self,
        queue: str,
        handler: Handler | Router,
        *,
        url: str | None = None,
        options: WorkerOptions | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        self.keys = QueueKeys(queue, prefix)
        self.options = options or WorkerOptions()
        self.id = f"worker-{now_ms()}-{secrets.token_hex(4)}"
        self._handler = handler
        self._url = url
        self._machine = Machine(self.options.concurrency)
        self._jobs: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._beside: set[asyncio.Future[None]] = set()
        self._failure: BaseException | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._deadline: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._started_ms = now_ms()
        self._line: Line
        self._leader: Leader
        self._heartbeat: Heartbeat
        self._runner: Runner

    @property
    def is_listening(self) -> bool:
        """Whether it is idle: waiting at the server for the next job."""
        return self._machine.listening > 0

    @property
    def is_paused(self) -> bool:
        """Whether it takes no jobs because the queue is paused."""
        return self._machine.phase is Phase.PAUSED

    def stop(self) -> None:
        """Take no new jobs, finish the running ones within ``options.drain``, and leave. Call it on the loop."""
        log.info("Worker %s is draining: %d jobs are running", self.id, self._machine.running)
        self._machine.drain()
        self._wake_listener()
        self._deadline = asyncio.get_running_loop().call_later(self.options.drain.total_seconds(), self.kill)

    def kill(self) -> None:
        """Leave at once: running jobs are given up, and other workers take them when their leases end."""
        self._machine.abandon()
        for task in self._jobs.values():
            task.cancel()
        self._changed.set()

    async def run(self) -> None:
        """Work until :meth:`stop` is called.

        Raises:
            TransportError: The server cannot be reached at the start. Later outages are survived.
        """
        calls = await AsyncConnection.open(self._url)
        waits = await calls.duplicate()
        executor = ThreadPoolExecutor(self.options.concurrency, thread_name_prefix="oq-job")
        self._line = Line(self.keys, self.id, calls, waits, honour_pause=self.options.honour_pause)
        loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(
            self.keys,
            calls.url,
            self.options.lock_duration.total_seconds(),
            on_end=lambda lease, why: loop.call_soon_threadsafe(self._give_up, lease, why),
        )
        self._runner = Runner(self._handler, self.keys, calls, executor)
        self._leader = Leader(self.keys, calls, secrets.token_hex(8), self.options.promotion_interval)
        chores = asyncio.ensure_future(self._chores(calls).run())
        chores.add_done_callback(lambda _: self.kill())  # they never end by themselves; their error is raised below
        try:
            await self._line.join()
            log.info("Worker %s takes jobs of queue %s, %d at a time", self.id, self.keys.queue, self._machine.places)
            await self._work()
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            await _cancelled(chores)
            for task in list(self._beside):
                await _cancelled(task)
            self._heartbeat.close()
            with suppress(OrchestrationQueueError):
                await self._line.leave()
            executor.shutdown(wait=False, cancel_futures=True)
            await waits.aclose()
            await calls.aclose()

    def _chores(self, calls: AsyncConnection) -> Chores:
        return Chores(
            self.keys,
            self.id,
            calls,
            self.options,
            leader=self._leader if self.options.run_schedulers else None,
            on_ready=self._look_again,
            on_tick=self._look_whether_paused,
            on_register=self._register,
        )

    async def _work(self) -> None:
        """Do what the machine says, step by step."""
        while True:
            match self._machine.step():
                case Exchange() as trip:
                    self._begin(self._travel(trip))
                case Listen(want):
                    self._begin(self._listen(want))
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

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something run beside the main loop, which fails if it does."""
        task = asyncio.ensure_future(work)
        self._beside.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failure = error
        self._changed.set()

    async def _travel(self, trip: Exchange) -> None:
        """Make a trip. When it fails, its load goes with the next one."""
        try:
            await self._exchange(trip)
            self._pause_s = _FIRST_PAUSE_S
        except OrchestrationQueueError as error:
            log.warning("A trip to the server failed and will be made again: %s", error)
            self._machine.failed(trip)

    async def _exchange(self, trip: Exchange) -> None:
        result = await self._line.exchange(trip)
        self._machine.exchanged(trip, len(result.started), result.why)
        for lease in result.started:
            self._jobs[lease.token] = asyncio.ensure_future(self._run(lease))
        for settlement, verdict in zip(trip.settle, result.verdicts, strict=True):
            if verdict is Verdict.LOST:
                log.warning("%s", LeaseLostError(self.keys.queue, settlement.lease.job_id))
            elif verdict is not Verdict.RETRYING and (scheduler := settlement.lease.scheduler):
                self._begin(self._continue(scheduler))

    async def _continue(self, scheduler: str) -> None:
        """Tell a repeat-after-complete schedule that its job has ended."""
        try:
            await self._leader.finished(scheduler)
        except OrchestrationQueueError as error:
            log.error("Schedule %s could not be told that its job has ended: %s", scheduler, error)

    async def _run(self, lease: Lease) -> None:
        """Run one job under its lease; whatever happens, its place becomes free again."""
        self._heartbeat.keep(lease, (lease.lock_ms or milliseconds(self.options.lock_duration)) / 1000)
        try:
            await self._runner.run(lease, self._tell)
        finally:
            self._heartbeat.drop(lease)
            self._jobs.pop(lease.token, None)
            self._machine.finished()
            self._changed.set()

    def _give_up(self, lease: Lease, why: Renewal) -> None:
        """Stop a job that is no longer ours to run."""
        if task := self._jobs.get(lease.token):
            if why is Renewal.REVOKED:
                self._tell(Failure(lease, "revoked"))
            else:
                log.warning("%s", LeaseLostError(self.keys.queue, lease.job_id))
            task.cancel()

    def _tell(self, settlement: Settlement) -> None:
        self._heartbeat.drop(settlement.lease)
        self._machine.tell(settlement)
        self._changed.set()

    async def _listen(self, want: int) -> None:
        """Wait at the server for the next jobs."""
        try:
            self._machine.heard(await self._line.listen(want, milliseconds(self.options.block)))
        except OrchestrationQueueError as error:
            log.warning("Waiting for jobs was interrupted: %s", error)
            self._machine.deaf()
        finally:
            self._changed.set()

    async def _recover(self) -> None:
        """Take up again what an outage interrupted, after a pause. When it lasts, the next round tries again."""
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        with suppress(OrchestrationQueueError):
            held = {job_id for job_id, _ in self._jobs} | self._machine.held
            self._machine.recovered(await self._line.recover(held))

    def _wake_listener(self) -> None:
        self._changed.set()
        if self._machine.listening:
            self._begin(self._unblock())

    async def _unblock(self) -> None:
        """End the wait at the server, which may only be on its way there."""
        with suppress(OrchestrationQueueError):
            while self._machine.listening and not await self._line.wake():  # noqa: ASYNC110  the server tells nobody
                await asyncio.sleep(_SOON_S)

    def _look_again(self) -> None:
        self._machine.look_again()
        self._wake_listener()

    async def _look_whether_paused(self) -> None:
        was = self.is_paused
        if await self._line.is_paused():
            self._machine.pause()
        else:
            self._machine.resume()
        if self.is_paused is not was:
            log.info("Queue %s is %s", self.keys.queue, "running again" if was else "paused")
            self._wake_listener()

    async def _register(self) -> None:
        description: dict[str, object] = {
            "addr": socket.gethostname(),
            "pid": os.getpid(),
            "startedAt": self._started_ms,
            "activeJobs": self._machine.running,
        }
        await self._line.register(description, max(_REGISTERED_MS, milliseconds(self.options.stalled_interval)))


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
