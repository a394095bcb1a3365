"""Replay a day of synthetic life into a server, in about a minute, and serve its console.

Run ``python -m tests.console.day`` at the top of the repository, and open the address that it prints. Time continues
there from Sunday morning, 2026-03-29 07:30 UTC. ``--scale 0.2`` replays a fifth of the usual jobs.

The server is a real one with a shifted clock, and all that it contains was written by the package's own calls, in the
order of the day, each at its time. What happens is in :mod:`tests.console.life`.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from orchestration_queue import AsyncQueue
from orchestration_queue.alerts import AlertEvaluator, read_receivers
from orchestration_queue.client import AsyncAlerts
from orchestration_queue.flows.record import split_job_id
from orchestration_queue.http import create_app
from orchestration_queue.protocol import outcome, statistics
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Failure, Lease
from orchestration_queue.protocol.operations import alerts
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.protocol.statistics import Tally
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from tests.alerts.receivers import Hook, hook
from tests.console import life
from tests.console.clock import DayClock, shifted_server
from tests.console.workers import ROUND, ReplayedWorker

__all__ = ["Day", "replayed"]

_LITTLE = timedelta(milliseconds=200)

_moment = partial(datetime.fromtimestamp, tz=UTC)

Act = Callable[[], Awaitable[None]]


class Day:
    """Carries out what happens, in the order of its times.

    Args:
        moved: The clocks.
        connection: The server.
        receiver: Gets the alerts' messages.
        scale: For the usual rates of jobs.
    """

    def __init__(self, moved: DayClock, connection: AsyncConnection, receiver: Hook, scale: float = 1.0) -> None:
        self._moved = moved
        self._connection, self._receiver = connection, receiver
        self._chance = random.Random(28)
        self._scale = scale
        self._at = life.START
        self._planned: list[tuple[datetime, int, Act]] = []
        self._numbers = itertools.count()
        self._workers: list[ReplayedWorker] = []
        self._queues = {
            name: AsyncQueue(name, connection=connection) for name in dict.fromkeys(staff.queue for staff in life.TEAM)
        }
        receivers = read_receivers({f"OQ_ALERT_RECEIVER_{name}": receiver.url for name in ("OPS", "ONCALL")})
        self._evaluator = AlertEvaluator(receivers, connection=connection, interval=1)
        self._evaluator._self = replace(self._evaluator._self, host="ops-1")

    @property
    def url(self) -> str:
        """The server."""
        return self._moved.url

    @property
    def received(self) -> list[str]:
        """What each of the alerts' messages said."""
        return self._receiver.states

    async def run(self) -> None:
        """Replay the day."""
        await self._prepare()
        while self._planned:
            self._at, _, act = heapq.heappop(self._planned)
            self._moved.move(round(self._at.timestamp() * 1000))
            await act()
        self._moved.move(round(life.END.timestamp() * 1000))
        for _ in range(2):  # each announces when the one before it was
            await self._evaluate()

    def _plan(self, at: datetime, act: Act) -> None:
        if at < life.END:
            heapq.heappush(self._planned, (at, next(self._numbers), act))

    async def _prepare(self) -> None:
        """Write what was before, and plan what does not depend on anything."""
        async with AsyncAlerts(connection=self._connection) as rules:
            for name, rule in life.ALERTS.items():
                await rules.set(name, rule)
        for queue, day, task, times, failures in life.history(self._chance):
            tally = Tally()
            for wait_ms, run_ms in times:
                tally.task(task).wait.add(wait_ms)
                tally.task(task).run.add(run_ms)
            for _ in range(failures):
                tally.task(task).fail("mailbox full" if queue == "emails" else "card declined")
            day_ms = round(day.timestamp() * 1000)
            await self._connection.execute(statistics.count(QueueKeys(queue), day_ms, tally))
        for queue, name, schedule, template in life.SCHEDULES:
            await self._queues[queue].schedulers.upsert(name, schedule, template)
        for staff in life.TEAM:
            self._plan(staff.start, self._hire(staff))
        for addition in life.additions(self._chance, self._scale):
            self._plan(addition.at, self._add(addition))
        for queue in self._queues:
            self._plan(life.START + _LITTLE, partial(self._tick, queue))
        self._plan(life.LOST, self._lose_machine)
        for turn in range(1, (life.END - life.START) // ROUND):
            self._plan(life.START + turn * ROUND + _LITTLE, self._maintain)
            self._plan(life.START + turn * ROUND + 2 * _LITTLE, self._evaluate)

    def _hire(self, staff: life.Staff) -> Act:
        async def act() -> None:
            worker = ReplayedWorker(
                staff.queue, staff.name, staff.host, self._connection,
                concurrency=staff.concurrency, tasks=staff.tasks,
            )  # fmt: skip
            await worker.start()
            self._workers.append(worker)
            self._begin(worker, await worker.take())

        return act

    def _add(self, addition: life.Addition) -> Act:
        async def act() -> None:
            options = {"attempts": 3, "backoff": {"type": "exponential", "delay": 60}}
            given = options if addition.name == "send" else None
            await self._queues[addition.queue].add(addition.name, addition.data, given)
            await self._offer(addition.queue)

        return act

    async def _lose_machine(self) -> None:
        for worker in self._workers:
            if worker.host == life.LOST_HOST:
                await worker.lose()

    def _at_work(self, queue: str | None = None) -> list[ReplayedWorker]:
        return [each for each in self._workers if not each.is_lost and queue in (None, each.queue)]

    async def _maintain(self) -> None:
        for queue in self._queues:
            for place, worker in enumerate(self._at_work(queue)):
                await worker.maintain(leads=place == 0)
            await self._tick(queue)

    async def _tick(self, queue: str) -> None:
        """Make ready what is due, and come back for the next schedule."""
        for worker in self._at_work(queue)[:1]:
            due_ms = await worker.tick()
            if due_ms > now_ms():
                self._plan(_moment(due_ms / 1000) + _LITTLE, partial(self._tick, queue))
        await self._offer(queue)

    async def _evaluate(self) -> None:
        """Evaluate the rules once, and wait until what is due has been sent."""
        evaluator = self._evaluator
        evaluator._due = 0.0
        await evaluator._turn()
        if not evaluator.is_leader:  # the lock has expired since
            await evaluator._turn()
        assert evaluator._evaluating is not None
        await evaluator._evaluating
        evaluator._send_due(await self._connection.follow(alerts.read_due(evaluator._keys, now_ms(), 0)))
        await asyncio.gather(*evaluator._sending.values())

    async def _offer(self, queue: str) -> None:
        """Let the workers of a queue with free slots ask for jobs."""
        for worker in self._at_work(queue):
            self._begin(worker, await worker.take())
            if worker.running < worker.concurrency:
                break  # nothing more is ready

    def _begin(self, worker: ReplayedWorker, leases: list[Lease]) -> None:
        for lease in leases:
            took = timedelta(seconds=life.seconds_of(lease.record.name, self._chance))
            self._plan(self._at + took, self._end(worker, lease))

    def _end(self, worker: ReplayedWorker, lease: Lease) -> Act:
        async def act() -> None:
            if worker.is_lost:
                return
            error = life.error_of(lease.record, self._at, self._chance)
            if error is None:
                settlement = outcome.completed(lease, {"rows": self._chance.randint(10, 90_000)})
            else:
                settlement = outcome.failed(lease, error, self._chance.random())
            verdict, started = await worker.settle(settlement)
            self._begin(worker, started)
            if verdict is Verdict.RETRYING and isinstance(settlement, Failure):
                due = self._at + timedelta(milliseconds=settlement.backoff_ms)
                self._plan(due + _LITTLE, partial(self._tick, worker.queue))
            if split_job_id(lease.job_id) is not None:
                await self._offer(worker.queue)

        return act

    async def live(self) -> None:
        """Continue at the usual speed, with workers that report and rules that are evaluated, until cancelled."""
        keeping = asyncio.create_task(self._moved.keep())
        try:
            while True:
                await self._maintain()
                await self._evaluate()
                await asyncio.sleep(5)
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping


@asynccontextmanager
async def replayed(scale: float = 1.0) -> AsyncIterator[Day]:
    """A day that was replayed into a server of its own; both clocks show its end."""
    async with AsyncExitStack() as stack:
        moved = stack.enter_context(shifted_server(life.START))
        receiver = await stack.enter_async_context(hook())
        connection = await stack.enter_async_context(await AsyncConnection.open(moved.url))
        day = Day(moved, connection, receiver, scale)
        await day.run()
        yield day


async def _serve(scale: float, port: int) -> None:
    import uvicorn

    began = datetime.now(UTC)
    async with replayed(scale) as day:
        print(f"Replayed {life.END - life.START} in {datetime.now(UTC) - began}.")
        app = create_app(day.url, console=True)
        site = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", lifespan="on"))
        living = asyncio.create_task(day.live())
        print(f"The console is at http://127.0.0.1:{port}/ui")
        try:
            await site.serve()
        finally:
            living.cancel()
            await app.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Replay a day into a server, and serve its console.")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(given.scale, given.port))
