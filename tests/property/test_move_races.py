"""A job is moved while others act on it: in every order of their calls it runs once, with all that happened to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import StateError
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.moves import move
from orchestration_queue.server.clock import now_ms
from tests.property.interleavings import Client, GatedConnection, run_in_order, schedules

LATER_MS, SOON = 60_000, timedelta(seconds=60)
SOURCE, TARGET = QueueKeys("q"), QueueKeys("r")


@dataclass
class World:
    """A job on its way from one queue to another, and a job that may wait for it."""

    raw: redis.Redis
    connections: list[GatedConnection]

    async def reset(self) -> None:
        self.raw.flushall()
        for connection in self.connections:
            connection.client = None
        await self.queue(SOURCE).add("n", {"of": "then"}, JobOptions(job_id="a", tags=("red",)))
        self.raw.hset(SOURCE.job("p"), mapping={"state": "waiting-children", "name": "p", "id": "p"})

    def queue(self, keys: QueueKeys, client: Client | None = None) -> AsyncQueue:
        return AsyncQueue(keys.queue, connection=self.connection(client))

    def connection(self, client: Client | None) -> GatedConnection:
        found = self.connections[-1 if client is None else int(client.name)]
        found.client = client
        return found

    async def move(self, client: Client) -> None:
        await self.connection(client).follow(move(SOURCE, TARGET, "a", now_ms()))

    async def die(self, exchanges: int, client: Client) -> None:
        """Make the first exchanges of a move."""
        steps, connection = move(SOURCE, TARGET, "a", now_ms()), self.connection(client)
        calls = next(steps)
        with suppress(StopIteration):
            for _ in range(exchanges):
                calls = steps.send(await connection.pipeline(calls))

    async def register(self, client: Client) -> Any:
        """Have a job wait for it, as Node's clients do; it is refused once the job has gone."""
        call = glidemq.register_parent(
            job_key=SOURCE.job("a"), parents_key=SOURCE.parents("a"), parent_deps_key=SOURCE.deps("p"),
            parent_job_key=SOURCE.job("p"), parent_stream_key=SOURCE.stream, parent_events_key=SOURCE.events,
            job_id="a", parent_id="p", parent_queue=SOURCE.base, deps_member=SOURCE.member("a"),
        )  # fmt: skip
        return await self.connection(client).execute(call)

    async def cancel(self, client: Client) -> Any:
        return await self.queue(SOURCE, client).cancel("a")

    async def update(self, client: Client) -> Any:
        return await self.connection(client).execute(Call("HSET", (SOURCE.job("a"),), ("data", '{"of":"now"}')))

    async def remove(self, client: Client) -> bool:
        return await self.queue(SOURCE, client).remove("a", force=True)

    async def reconcile(self, client: Client | None = None) -> None:
        for keys in (SOURCE, TARGET):
            connection = self.connection(client)
            later = FlowReconciler(keys, lambda: now_ms() + LATER_MS, interval=SOON, patience=SOON)
            await connection.follow(later.round())

    async def settle(self) -> int:
        """Let time pass and a worker complete the job; returns how often it ran."""
        for _ in range(2):
            await self.reconcile()
        ran = 0
        while taken := await self.queue(TARGET).take(5):
            for job in taken:
                await job.complete()
                ran += 1
        assert not self.raw.exists(SOURCE.moving, TARGET.moving)
        assert not self.raw.exists(SOURCE.job("a"))
        return ran


Act = Callable[[World, Client], Awaitable[Any]]
MOVES: dict[str, list[Act]] = {
    "one": [World.move],
    "two": [World.move, World.move],
    "and the reconciler": [World.move, World.reconcile],
    **{
        f"that dies after {count} and the reconciler": [
            lambda world, client, count=count: world.die(count, client),  # type: ignore[misc]
            World.reconcile,
        ]
        for count in (1, 2, 3)
    },
}


async def race(
    server_url: str, raw: redis.Redis, acts: list[Act], preemptions: int, check: Callable[[World, Any, Any], Any]
) -> None:
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(await GatedConnection.open(server_url)) for _ in range(len(acts) + 1)
        ]
        world = World(raw, connections)
        for schedule in schedules(preemptions):
            await world.reset()
            done = await run_in_order(schedule, [partial(act, world) for act in acts])
            await check(world, done[-1], schedule)


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
async def test_a_dependent_registered_during_a_move_is_notified(
    server_url: str, raw: redis.Redis, moves: list[Act], preemptions: int
) -> None:
    answers = set()

    async def check(world: World, answer: Any, schedule: Any) -> None:
        answers.add(answer)
        assert await world.settle() == 1, schedule
        state = raw.hget(SOURCE.job("p"), "state")
        assert state == ("waiting" if answer == b"ok" else "waiting-children"), (schedule, answer)

    await race(server_url, raw, [*moves, World.register], preemptions, check)
    assert answers == {b"ok", b"error:child_not_found"}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
async def test_a_cancel_during_a_move_is_heeded(
    server_url: str, raw: redis.Redis, moves: list[Act], preemptions: int
) -> None:
    heeded = 0

    async def check(world: World, answer: Any, schedule: Any) -> None:
        nonlocal heeded
        is_gone = isinstance(answer, StateError)  # it is in the other queue already
        if not is_gone and raw.hget(SOURCE.job("a"), "state") == "failed":
            return  # before the move, which then moves a failed job or is over
        ran = await world.settle()
        assert (ran == 1) is is_gone, (schedule, answer)
        if not is_gone:
            found = raw.hmget(TARGET.job("a"), "state", "failureKind")
            assert found == ["failed", "cancelled"], schedule
            heeded += 1

    await race(server_url, raw, [*moves, World.cancel], preemptions, check)
    assert heeded


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
async def test_data_that_changes_during_a_move_comes_along(
    server_url: str, raw: redis.Redis, moves: list[Act], preemptions: int
) -> None:
    async def check(world: World, answer: Any, schedule: Any) -> None:
        if raw.hexists(SOURCE.job("a"), "name") or answer == 0:
            assert await world.settle() == 1, schedule
            expected = '{"of":"now"}' if answer == 0 else '{"of":"then"}'
            assert raw.hget(TARGET.job("a"), "data") in (expected, '{"of":"now"}'), schedule

    await race(server_url, raw, [*moves, World.update], preemptions, check)


@pytest.mark.parametrize("moves", [MOVES["one"], MOVES["two"]], ids=["one", "two"])
async def test_a_job_that_is_removed_during_a_move_does_not_come_back(
    server_url: str, raw: redis.Redis, moves: list[Act], preemptions: int
) -> None:
    async def check(world: World, was_there: Any, schedule: Any) -> None:
        assert await world.settle() == (not was_there), schedule

    await race(server_url, raw, [*moves, World.remove], preemptions, check)
