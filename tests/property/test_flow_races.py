"""Submitting, controlling and reconciling a flow at a time: in every order of their calls, it ends and is noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.flows import Dag, FlowOptions, Node
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Failure, Lease
from orchestration_queue.protocol.operations import exchanges
from orchestration_queue.protocol.operations.notifications import notify_all
from orchestration_queue.server.clock import now_ms
from tests.by_hand import HandWorker
from tests.property.interleavings import Client, GatedConnection, Schedule, run_in_order, schedules

Act = Callable[["World", Client], Awaitable[Any]]
INTERVAL, PATIENCE = timedelta(seconds=5), timedelta(minutes=5)
QUEUES = ("q", "q-2")


@dataclass
class World:
    """A server with one flow of two queues, and those that act on it."""

    url: str
    raw: redis.Redis
    stack: AsyncExitStack
    of_run: ExitStack = field(default_factory=ExitStack)
    hands: dict[str, HandWorker] = field(default_factory=dict)
    connections: list[GatedConnection] = field(default_factory=list)
    later_ms: int = 0

    async def open(self, clients: int) -> None:
        for _ in range(clients + 1):
            self.connections.append(await self.stack.enter_async_context(await GatedConnection.open(self.url)))

    def reset(self) -> None:
        self.raw.flushall()
        self.of_run.close()
        self.hands = {queue: self.of_run.enter_context(HandWorker(self.url, queue)) for queue in QUEUES}
        self.later_ms = 0
        for connection in self.connections:
            connection.client = None

    def connection(self, client: Client | None) -> GatedConnection:
        """Return a connection of the client's own, or one without turns."""
        found = self.connections[-1 if client is None else int(client.name)]
        found.client = client
        return found

    def now(self) -> int:
        return now_ms() + self.later_ms

    def dag(self, **options: Any) -> Dag:
        nodes = [Node("a"), Node("b", queue="q-2", deps=["a"]), Node("c", deps=["b"])]
        return Dag("d", nodes, "q", FlowOptions(**options))

    async def race(self, schedule: Schedule, acts: Sequence[Act]) -> list[Any]:
        return await run_in_order(schedule, [partial(act, self) for act in acts])

    async def submit(self, client: Client | None = None, **options: Any) -> Any:
        producer = AsyncFlowProducer(connection=self.connection(client), carrier="packed")
        return await producer.submit(self.dag(**options), flow_id="f")

    async def reconcile(self, client: Client | None = None) -> None:
        keys, connection = QueueKeys("q"), self.connection(client)
        reconciler = FlowReconciler(keys, self.now, interval=INTERVAL, patience=PATIENCE)
        await connection.follow(reconciler.round())

    async def work(self, client: Client | None = None) -> None:
        """Complete what is ready; a node at a time."""
        for _ in range(3):
            if client is not None:
                await client.gate()
            self.complete_one()

    async def fail_first(self, client: Client | None = None) -> None:
        """Fail the first node as a worker of a cluster does, and then notify the node of the other queue."""
        connection, keys = self.connection(client), QueueKeys("q")
        held = self.hands["q"].take()
        failure = Failure(Lease(held.record, held.entry_id), "no such file")
        operation = exchanges.exchange(keys, "hand", now_ms(), settle=(failure,), cluster=True)
        result = await connection.run(operation)
        assert result.pending.news, "the other queue's node need not be notified"
        await connection.follow(notify_all([(keys, result.pending)], now_ms()))

    def complete_one(self) -> bool:
        for hand in self.hands.values():
            if any(self.raw.hget(hand.keys.job(f"f.{name}"), "state") == "waiting" for name in "abc"):
                hand.complete(hand.take())
                return True
        return False

    def states(self) -> list[Any]:
        places = (("q", "a"), ("q-2", "b"), ("q", "c"))
        return [self.raw.hget(QueueKeys(queue).job(f"f.{name}"), "state") for queue, name in places]

    async def retry(self, client: Client | None = None) -> Any:
        flow = await AsyncQueue("q", connection=self.connection(client)).flows.get("f")
        return await flow.retry()

    async def settle(self, intervals_s: Sequence[int] = (5,) * 8) -> None:
        """Let time pass, interval by interval, and workers and reconcilers do their part."""
        for interval_s in intervals_s:
            while self.complete_one():
                pass
            self.later_ms += interval_s * 1000 + 1
            await self.reconcile()

    async def fail(self, intervals_s: Sequence[int]) -> None:
        """Submit, fail the first node, and let so much time pass."""
        await self.submit()
        hand = self.hands["q"]
        hand.fail(hand.take(), "no such file")
        await self.settle(intervals_s[:-1])
        self.later_ms += intervals_s[-1] * 1000 + 1
        self.go_back()

    def go_back(self) -> None:
        """Move the flow's times into the past, so that the reconciler's time is the server's again."""
        keys, past_ms = QueueKeys("q"), -self.later_ms
        for name in ("createdAt", "finishedAt"):
            if self.raw.hexists(keys.flow("f"), name):
                self.raw.hincrby(keys.flow("f"), name, past_ms)
        for index in (keys.flows, keys.flows_due, keys.flows_ended):
            if self.raw.zscore(index, "f") is not None:
                self.raw.zincrby(index, past_ms, "f")
        self.later_ms = 0


@pytest.mark.parametrize(
    "others",
    [[World.reconcile], [World.reconcile, World.work], [World.submit]],
    ids=["reconciler", "reconciler and worker", "another submitter"],
)
async def test_a_flow_ends_and_its_end_is_noted_whoever_looked_while_it_was_submitted(
    server_url: str, raw: redis.Redis, others: list[Act], preemptions: int
) -> None:
    async with AsyncExitStack() as stack:
        world = World(server_url, raw, stack)
        stack.callback(world.of_run.close)
        await world.open(1 + len(others))
        for schedule in schedules(preemptions):
            world.reset()
            done = await world.race(schedule, [World.submit, *others])
            await world.settle()
            noted = raw.hgetall(QueueKeys("q").flow("f"))
            assert not [one for one in done if isinstance(one, BaseException)], (schedule, done)
            assert world.states() == ["completed"] * 3, schedule
            assert (noted["state"], noted.get("held")) == ("completed", None), schedule


@pytest.mark.parametrize("seen", [(5, 5), (5, 5, 60), (5, 5, 60, 60)], ids=str)
async def test_a_flow_that_is_retried_while_its_end_is_noted_ends_again(
    server_url: str, raw: redis.Redis, seen: tuple[int, ...], preemptions: int
) -> None:
    acts: list[Act] = [World.retry, World.reconcile]
    async with AsyncExitStack() as stack:
        world = World(server_url, raw, stack)
        stack.callback(world.of_run.close)
        await world.open(len(acts))
        for schedule in schedules(preemptions):
            world.reset()
            await world.fail(seen)
            done = await world.race(schedule, acts)
            await world.settle((5, 5, 5, 60, 5, 5, 60))
            noted = raw.hgetall(QueueKeys("q").flow("f"))
            assert not [one for one in done if isinstance(one, BaseException)], (schedule, done)
            assert world.states() == ["completed"] * 3, (schedule, world.states())
            assert (noted["state"], noted.get("held")) == ("completed", None), schedule
            assert not raw.zcard(QueueKeys("q").flows_due), schedule


@pytest.mark.parametrize("others", [[], [World.reconcile], [World.work]], ids=["alone", "reconciler", "worker"])
async def test_a_retry_outlives_the_notification_of_the_failure_before_it(
    server_url: str, raw: redis.Redis, others: list[Act], preemptions: int
) -> None:
    acts: list[Act] = [World.fail_first, World.retry, *others]
    retried = 0
    async with AsyncExitStack() as stack:
        world = World(server_url, raw, stack)
        stack.callback(world.of_run.close)
        await world.open(len(acts))
        for schedule in schedules(preemptions):
            world.reset()
            await world.submit()
            done = await world.race(schedule, acts)
            await world.settle((5, 5, 5, 60, 5, 5, 60))
            noted = raw.hgetall(QueueKeys("q").flow("f"))
            assert not [one for one in done if isinstance(one, BaseException)], (schedule, done)
            ends = ["completed"] * 3 if done[1] else ["failed"] * 3
            assert world.states() == ends, (schedule, done, world.states())
            assert noted["state"] == ends[0], schedule
            retried += bool(done[1])
    assert retried
