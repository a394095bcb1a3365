"""Workers at the replay's pace: a worker's real connections, maintenance and counts, without its loop and threads."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import WorkerOptions, milliseconds
from orchestration_queue.protocol import outcome
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease, Settlement
from orchestration_queue.protocol.operations import exchanges
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.schedules import SUBMIT_FLOW
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import ServerClock, now_ms
from orchestration_queue.worker.events import Tallying
from orchestration_queue.worker.machine import Exchange
from orchestration_queue.worker.queue_io import QueueIO
from orchestration_queue.worker.remote_control import describe_worker
from orchestration_queue.worker.reserved import reserved_handlers
from orchestration_queue.worker.scheduler_leader import SchedulerLeader

__all__ = ["ROUND", "ReplayedWorker"]

ROUND, LEASE = timedelta(minutes=2), timedelta(minutes=5)
"""How often a worker renews its leases, and how long they are: whose worker lives, lasts from round to round."""


class _ClientClock(ServerClock):
    """The server's clock for a worker, which is the clients' here."""

    def now_ms(self) -> int:
        return now_ms()


class ReplayedWorker:
    """One worker.

    Args:
        queue: Its queue.
        name: Its name among the queue's consumers.
        host: The machine that it says it runs on.
        connection: The server.
        concurrency: How many jobs it runs at a time.
        tasks: The tasks that it says it runs.

    Attributes:
        held: The leases of its jobs.
        is_lost: Whether its machine has died.
    """

    is_paused = False

    def __init__(
        self,
        queue: str,
        name: str,
        host: str,
        connection: AsyncConnection,
        *,
        concurrency: int,
        tasks: Iterable[str],
    ) -> None:
        self.queue, self.name, self.host, self.concurrency = queue, name, host, concurrency
        self.held: set[Lease] = set()
        self.is_lost = False
        self._keys = QueueKeys(queue)
        self._connection = connection
        self._tasks = tuple(tasks)
        self.options = WorkerOptions(
            concurrency=concurrency, lease=LEASE, stalled_interval=LEASE, dead_letter_queue=f"{queue}-dead",
            code_version="2026.13",
        )  # fmt: skip
        self.io = QueueIO(self._keys, name, connection, connection, self.options)
        self.io.clock = _ClientClock()
        self.io._host = host
        self._tally = Tallying(self.io, _drop)
        self._leader = SchedulerLeader(self._keys, connection, ROUND, now_ms)
        self._reconciler = FlowReconciler(self._keys, now_ms)
        self._reserved = reserved_handlers(self._keys, connection)
        self._started_ms = now_ms()

    @property
    def running(self) -> int:
        """How many jobs it runs."""
        return len(self.held)

    async def start(self) -> None:
        """Join the queue's workers."""
        await self.io.set_clock()
        await self.io.join()
        await self.maintain(leads=False)

    async def take(self) -> list[Lease]:
        """Start as many jobs as there are free slots for."""
        return (await self._exchange(()))[1] if self.running < self.concurrency else []

    async def settle(self, settlement: Settlement) -> tuple[Verdict, list[Lease]]:
        """Report an outcome; return the server's verdict, and the jobs that started."""
        self.held.discard(settlement.lease)
        (verdict,), started = await self._exchange((settlement,))
        self._tally.count(settlement, verdict)
        return verdict, started

    async def _exchange(self, settlements: tuple[Settlement, ...]) -> tuple[tuple[Verdict, ...], list[Lease]]:
        step = Exchange(settle=settlements, want=self.concurrency - self.running)
        result, started = await self.io.exchange(step), []
        self.held.update(result.started)
        for lease in result.started:
            if lease.record.name == SUBMIT_FLOW:
                job = cast("Any", SimpleNamespace(id=lease.job_id, data=lease.record.data))
                submitted = await cast("Any", self._reserved[SUBMIT_FLOW](job))
                started += (await self.settle(outcome.completed(lease, submitted)))[1]
            else:
                started.append(lease)
        return result.verdicts, started

    async def tick(self) -> int:
        """Make ready what is due, and add the jobs of due schedules; return when the next schedule is due, epoch ms."""
        while True:
            tick, _ = await self.io.tick_and_watch(milliseconds(ROUND), [], heal=False, fires=True)
            if await self._leader.tick(tick.schedules_due_ms) < 0:
                return tick.schedules_due_ms

    async def maintain(self, *, leads: bool = True) -> None:
        """Run one round of what a worker does from time to time.

        Args:
            leads: Whether also of what any worker of the queue does for all.
        """
        if leads:
            await self._connection.follow(self._reconciler.round())
            await self.io.reclaim()
        if self.held:
            await self._connection.run(exchanges.renew(self._keys, list(self.held), now_ms()))
        description = describe_worker(cast("Any", self), self._started_ms, self.held, self._tasks, ())
        process = {"addr": self.host, "pid": 4000 + sum(map(ord, self.name)) % 1000}
        await self.io.register(description | process, milliseconds(LEASE))
        await self._tally.send()

    async def lose(self) -> None:
        """Die, with the machine, without a word to the server."""
        self.is_lost = True
        await self._tally.send()


def _drop(sending: Coroutine[Any, Any, None]) -> None:
    """Counts are sent with each round of maintenance, not by a timer of the real clock."""
    sending.close()
