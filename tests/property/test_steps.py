"""Durable steps, whatever dies: each stored outcome is the first one, each function ran, and the end is the same.

Random handlers of steps, steps side by side, sleeps, waits, and calls run in attempts that die before or after any of
their commands, lose replies, and are overtaken by another attempt between two commands. The attempts are those of a
real job on a real server; only the clock is the test's. A called job runs once, also in another queue, whose worker
notifies the caller never.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import redis
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import JobFailedError, LeaseLostError, ServerError
from orchestration_queue.flows import Node
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import JobOptions, StepOptions
from orchestration_queue.protocol import codec, outcome
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease, Settlement
from orchestration_queue.protocol.operations import exchanges, suspension, worker_registry, worker_signals
from orchestration_queue.server import AsyncConnection
from orchestration_queue.states import JobState
from orchestration_queue.testing import TimeMachine
from orchestration_queue.worker import AsyncActiveJob, JobInterrupt

KEYS, THERE = QueueKeys("steps"), QueueKeys("there")
HOUR = timedelta(hours=1)
MOST_ROUNDS = 100

Part = tuple[str, ...]
"""What a handler does: a word, and names of steps."""


class NotThereError(Exception):
    """What some steps store."""


class DeathError(BaseException):
    """The worker process dies here."""


@dataclass
class World:
    """A job, all its attempts so far, and what must be true of them."""

    raw: redis.Redis
    url: str
    clock: TimeMachine
    plan: Sequence[Part]
    faults: list[tuple[str, int]]
    runs: Counter[str] = field(default_factory=Counter)
    stored: dict[str, str] = field(default_factory=dict)
    """The final outcomes, as they were first seen."""
    attempts: int = 0
    lost: int = 0

    def look(self) -> None:
        """Check that no stored outcome has changed or gone."""
        found: dict[str, str] = self.raw.hgetall(KEYS.steps("j"))  # type: ignore[assignment]
        pending = {name[2:] for name, header in found.items() if name.startswith("h:") and header[0] in "wc"}
        final = {name: value for name, value in found.items() if name[2:] not in pending}
        assert {name: final.get(name) for name in self.stored} == self.stored
        self.stored = final

    # -- the handler ---------------------------------------------------------------------------------------------

    async def handle(self, job: AsyncActiveJob) -> list[Any]:
        results: list[Any] = []
        for kind, *names in self.plan:
            match kind:
                case "step" | "fails":
                    results.append(await self._step(job, kind, names[0]))
                case "side by side":
                    tasks = [asyncio.ensure_future(self._step(job, "step", name)) for name in names]
                    try:
                        results += await asyncio.gather(*tasks)
                    finally:
                        for task in tasks:
                            task.cancel()
                        await asyncio.wait(tasks)
                case "stores":
                    options = StepOptions(store_errors=(NotThereError,))
                    with suppress(NotThereError):
                        await job.step(names[0], self._miss, job, names[0], options=options)
                case "sleep":
                    await job.sleep(names[0], HOUR)
                case "wait":
                    results.append(await job.wait_for(names[0], timeout=10 * HOUR))
                case "call" | "fails once":
                    results.append(await job.call(self._called(kind, names[0])))
                case "calls":
                    results += await job.gather(*(self._called(kind, name) for name in names))
                case "wait in vain":
                    with suppress(TimeoutError):
                        await job.wait_for(names[0], timeout=HOUR)
        return results

    def _called(self, kind: str, name: str) -> Node:
        return Node(name, kind, THERE.queue if name.endswith("1") else None, name)

    async def _step(self, job: AsyncActiveJob, kind: str, name: str) -> Any:
        return await job.step(name, self._call, job, kind, name)

    async def _call(self, job: AsyncActiveJob, kind: str, name: str) -> list[Any]:
        self._note_run(job, name)
        await asyncio.sleep(0)
        if kind == "fails" and self.runs[name] < 3:
            raise ValueError(name)
        return [name, self.runs[name]]

    def _miss(self, job: AsyncActiveJob, name: str) -> None:
        self._note_run(job, name)
        raise NotThereError(name)

    def _note_run(self, job: AsyncActiveJob, name: str) -> None:
        connection = job._connection
        assert isinstance(connection, FaultyConnection)
        assert connection.is_overtaken or f"h:{name}" not in self.stored, "what is stored is not run again"
        self.runs[name] += 1

    # -- its worker ----------------------------------------------------------------------------------------------

    async def run(self) -> Any:
        """Run the job to its end; return its result."""
        self.raw.flushall()
        async with AsyncQueue(KEYS.queue, url=self.url) as queue, await AsyncConnection.open(self.url) as connection:
            for keys in (KEYS, THERE):
                with suppress(ServerError):
                    await connection.execute(worker_registry.create_group(keys))
            job = await queue.add("work", None, JobOptions(job_id="j", attempts=1000))
            for _ in range(MOST_ROUNDS):
                if (await job.refresh()).is_finished:
                    break
                await self.advance(connection, str(job.state))
            assert job.state is JobState.COMPLETED
            return job.result

    async def advance(self, connection: AsyncConnection, state: str) -> None:
        """Do what the job needs in this state."""
        match state:
            case "suspended":
                reason = self.raw.hget(KEYS.job("j"), "suspendReason") or ""
                name = str(reason).split("'")[1]
                if ("wait", name) in self.plan:
                    await connection.run(suspension.signal(KEYS, "j", name, {"of": name}, self.now()))
            case "active":  # the process that ran it is dead
                await self.take_over(connection)
            case "waiting-children":
                await connection.follow(FlowReconciler(KEYS, self.now).round())
        for keys in (KEYS, THERE):
            if (lease := await self.take(connection, keys)) is not None:
                if lease.job_id == "j":
                    await self.attempt(connection, lease)
                else:
                    await self.end_called(connection, keys, lease)

    async def end_called(self, connection: AsyncConnection, keys: QueueKeys, lease: Lease) -> None:
        """Run a called job."""
        name = str(lease.record.data)
        self.runs[name] += 1
        if lease.record.name == "fails once" and self.runs[name] == 1:
            settlement: Settlement = outcome.failed(lease, ValueError(name), 0)
        else:
            settlement = outcome.completed(lease, [name, self.runs[name]])
        await connection.run(exchanges.exchange(keys, "w", self.now(), settle=[settlement]))

    def now(self) -> int:
        """Return a later time each time."""
        self.clock.travel(timedelta(minutes=5))
        return int(self.clock.now().timestamp() * 1000)

    async def take(self, connection: AsyncConnection, keys: QueueKeys = KEYS) -> Lease | None:
        await connection.run(worker_signals.tick(keys, self.now()))
        deliveries = await connection.run(exchanges.read_group(keys, "w", 1, 1))
        started = (await connection.run(exchanges.exchange(keys, "w", self.now(), start=deliveries))).started
        return started[0] if started else None

    async def take_over(self, connection: AsyncConnection) -> None:
        self.clock.travel(HOUR)
        await connection.run(exchanges.reclaim(KEYS, "w", 0, 1000, 0, self.now()))

    async def attempt(self, connection: AsyncConnection, lease: Lease) -> None:
        """Run the handler, with the next fault, and report its outcome."""
        self.attempts += 1
        fault = self.faults.pop(0) if self.faults else ("", 0)
        async with await FaultyConnection.open(self.url) as faulty:
            faulty.world, faulty.fault, faulty.overtaking = self, fault, asyncio.Lock()
            settlement = await self.settle(lease, AsyncActiveJob(lease.record, KEYS, faulty))
        self.look()
        if settlement is not None:
            await connection.run(exchanges.exchange(KEYS, "w", self.now(), settle=[settlement]))

    async def settle(self, lease: Lease, job: AsyncActiveJob) -> Settlement | None:
        try:
            return outcome.completed(lease, await self.handle(job))
        except JobInterrupt as interrupt:
            return interrupt.settle(lease)
        except DeathError:
            return None
        except LeaseLostError as error:
            self.lost += 1
            return outcome.failed(lease, error, 0)
        except (ValueError, JobFailedError) as error:
            return outcome.failed(lease, error, 0)


class FaultyConnection(AsyncConnection):
    """A connection of an attempt to which something happens at one of its commands."""

    world: World
    fault: tuple[str, int] = ("", 0)
    sent = 0
    is_dead = False
    is_overtaken = False
    overtaking: asyncio.Lock
    """Nothing else of the attempt happens while another attempt overtakes it."""

    async def _exchange(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> list[Reply]:
        async with self.overtaking:
            return await self._send(calls, atomic=atomic, repeatable=repeatable)

    async def _send(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> list[Reply]:
        kind, at = self.fault
        happens = self.sent == at
        self.sent += 1
        if self.is_dead or (happens and kind == "dies before"):
            self.is_dead = True
            raise DeathError
        if happens and kind == "is overtaken":
            await self._overtake()
        before = self.world.raw.hgetall(KEYS.steps("j"))
        replies = await super()._exchange(calls, atomic=atomic, repeatable=repeatable)
        if self.is_overtaken:
            assert self.world.raw.hgetall(KEYS.steps("j")) == before, "an attempt that lost the job stores nothing"
        self.world.look()
        if happens and kind == "dies after":
            self.is_dead = True
            raise DeathError
        if happens and kind == "loses the reply":
            assert repeatable
            replies = await super()._exchange(calls, atomic=atomic, repeatable=repeatable)
        return replies

    async def _overtake(self) -> None:
        """Let another worker take the job over and make an attempt, while this one waits."""
        async with await AsyncConnection.open(self.world.url) as other:
            await self.world.take_over(other)
            while (lease := await self.world.take(other)) is not None:
                if lease.job_id == "j":
                    self.is_overtaken = True
                    await self.world.attempt(other, lease)
                    break
                await self.world.end_called(other, KEYS, lease)


KINDS = st.sampled_from(
    ["step", "step", "side by side", "stores", "fails", "sleep", "wait", "wait in vain", "call", "calls", "fails once"]
)
MANY = ("side by side", "calls")
CALLS = ("call", "calls", "fails once")
FAULTS = st.tuples(
    st.sampled_from(["dies before", "dies after", "loses the reply", "is overtaken", "is overtaken"]), st.integers(0, 6)
)


@st.composite
def plans(draw: st.DrawFn) -> list[Part]:
    """Return a handler's parts, each step with a name of its own."""
    kinds = draw(st.lists(KINDS, min_size=1, max_size=7))
    return [
        (kind, *(f"{place}.{number}" for number in range(3 if kind in MANY else 1))) for place, kind in enumerate(kinds)
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans(), faults=st.lists(FAULTS, max_size=6))
def test_the_end_is_the_same_whatever_dies(
    server_url: str, raw: redis.Redis, plan: list[Part], faults: list[tuple[str, int]]
) -> None:
    with TimeMachine() as clock:
        world = World(raw, server_url, clock, plan, list(faults))
        result = asyncio.run(world.run())
    functions = [name for kind, *names in plan for name in names if kind in ("step", "side by side", "fails", "stores")]
    assert all(world.runs[name] >= 1 for name in functions)
    called = {name: 2 if kind == "fails once" else 1 for kind, *names in plan for name in names if kind in CALLS}
    assert {name: runs for name, runs in world.runs.items() if name not in functions} == called
    assert {name[2:] for name in world.stored} == {name for _, *names in plan for name in names}
    returned = [name for kind, *names in plan for name in names if kind not in ("stores", "sleep", "wait in vain")]
    assert result == [codec.decode(world.stored[f"r:{name}"]) for name in returned]
    assert [found[0] if isinstance(found, list) else found["of"] for found in result] == returned
    if not faults:
        expected = called | {
            name: 3 if kind == "fails" else 1 for kind, *names in plan for name in names if name in functions
        }
        assert world.runs == expected
    event(f"attempts that lost the job: {min(world.lost, 3)}")
