"""The same random programs through the original's client and worker and through ours, each on a queue of its own.

Attempts, results, dead letters, events, cancels, schedules, and what is left on the server are equal.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest

from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, BackoffSpec, NewChasquiJob
from orchestration_queue.wires.chasquimq.entries import find_envelope
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.original import chasquimq, their_worker
from tests.chasquimq.programs import LARGEST, Cancel, JobOrder, Program, Repeat
from tests.chasquimq.redis86 import redis86
from tests.chasquimq.working import working
from tests.waiting import wait_until

ATTEMPTS = 2
MINUTE_MS = 60_000
DISTANT_MS = 300_000
"""What is delayed for longer is left alone by the workers of a run."""


@dataclass
class Side:
    """One implementation: its client, and what its worker's handler saw."""

    client: Any
    keys: ChasquiKeys
    server: Any
    hopeless: type[Exception]
    runs: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often a job of a label ran as which attempt."""
    labels: dict[str, str] = field(default_factory=dict)
    """The label of each id."""
    replies: list[Any] = field(default_factory=list)

    async def handle(self, job: Any) -> Any:
        if not isinstance(job.data, dict):
            return None
        data = job.data
        self.labels[job.id] = data["label"]
        self.runs[data["label"], job.attempt] += 1
        if job.attempt < data["failures"]:
            raise self.hopeless("never") if data["is_hopeless"] else RuntimeError("boom")
        return data["result"]

    async def add(self, order: JobOrder) -> None:
        job = await self.put(order)
        self.labels.setdefault(job.id, order.label)

    async def put(self, order: JobOrder) -> Any:
        raise NotImplementedError

    async def cancel(self, job_id: str) -> bool:
        raise NotImplementedError

    async def repeat(self, repeat: Repeat) -> str:
        raise NotImplementedError

    async def replay(self, number: int) -> int:
        raise NotImplementedError

    async def put_bulk(self, orders: list[JobOrder]) -> list[Any]:
        raise NotImplementedError

    async def remove(self, key: str) -> bool:
        raise NotImplementedError

    async def listed(self) -> list[Any]:
        """The schedules as the client lists them, without their next fires."""
        raise NotImplementedError

    async def found_results(self, job_ids: list[str]) -> list[Any]:
        raise NotImplementedError

    async def found_letters(self) -> list[tuple[str, str]]:
        """The dead letters as the client lists them: name and reason."""
        raise NotImplementedError

    async def read(self) -> None:
        """Note what the client reads of the queue."""
        ids = {label: job_id for job_id, label in self.labels.items()}
        names = sorted(ids)
        self.replies.append(dict(zip(names, await self.found_results([ids[name] for name in names]), strict=True)))
        self.replies += [sorted(await self.found_letters()), sorted(await self.listed())]

    # -- what is left ------------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Whether no job is ready or running, or due within minutes, and no schedule is due."""
        seconds, _ = self.server.time()
        calls = self.server.pipeline().xlen(self.keys.stream)
        calls.zcount(self.keys.delayed, "-inf", seconds * 1000 + DISTANT_MS)
        return not any(calls.zcount(self.keys.repeat, "-inf", seconds * 1000).execute())

    def label(self, job_id: str) -> str:
        return self.labels.get(job_id, job_id)

    def letters(self) -> list[tuple[str, ...]]:
        """The dead letters: whose, and why. Of the error, the original keeps nothing."""
        found = []
        for _, fields in self.server.xrange(self.keys.dead_letters):
            envelope = find_envelope(fields.get(b"d", b""))
            whose = self.label(envelope.id) if envelope else fields.get(b"d", b"").hex()
            found.append((whose, *(fields.get(name, b"").decode("utf-8", "replace") for name in (b"n", b"reason"))))
        return sorted(found)

    def results(self) -> dict[str, Any]:
        """The results that are kept, for about an hour."""
        found = {}
        for job_id, label in self.labels.items():
            key = self.keys.result(job_id)
            packed, ttl_s = self.server.pipeline().get(key).ttl(key).execute()
            if packed is not None:
                found[label] = (msgpack.unpackb(packed), 3500 < ttl_s <= 3600)
        return found

    def events(self) -> Counter[tuple[str, ...]]:
        """The events of the jobs, except of those that wait, which depend on when a worker looks."""
        found: Counter[tuple[str, ...]] = Counter()
        for _, fields in self.server.xrange(self.keys.events):
            kind = fields[b"e"].decode()
            if kind not in ("waiting", "drained"):
                whose = self.label(fields.get(b"id", b"").decode("utf-8", "replace"))
                found[kind, whose, fields.get(b"attempt", b"").decode(), fields.get(b"reason", b"").decode()] += 1
        return found

    def left(self) -> dict[str, Any]:
        """Delayed jobs, markers of ids, and schedules with the number of their fires."""
        now = self.server.time()[0] * 1000
        schedules = {}
        for key, at in self.server.zrange(self.keys.repeat, 0, -1, withscores=True):
            fired = self.server.hget(self.keys.spec(key.decode()), "fired")
            schedules[key.decode().partition("::")[0]] = (int(fired or 0), 0 < at - now <= MINUTE_MS + 2000)
        prefix = self.keys.stream.removesuffix("stream")
        markers = {
            key.decode().removeprefix(prefix)
            for kind in ("dlid", "didx")
            for key in self.server.scan_iter(f"{prefix}{kind}:*-[abc]")
        }
        return {"delayed": self.server.zcard(self.keys.delayed), "schedules": schedules, "markers": markers}

    def outcome(self) -> dict[str, Any]:
        return {
            "replies": self.replies,
            "runs": self.runs,
            "letters": self.letters(),
            "results": self.results(),
            "events": self.events(),
            "left": self.left(),
        }

    def clear(self) -> None:
        """Forget the run; the stream and its consumer group stay for the worker."""
        prefix = self.keys.stream.removesuffix("stream")
        for key in self.server.scan_iter(f"{prefix}*"):
            if key.decode() not in (self.keys.stream, self.keys.promoter_lock, self.keys.scheduler_lock):
                self.server.delete(key)
        self.runs, self.labels, self.replies = Counter(), {}, []


class Ours(Side):
    async def put(self, order: JobOrder) -> Any:
        kind, *numbers = order.backoff or ("",)
        backoff = None
        if kind == "fixed":
            backoff = BackoffSpec.fixed(numbers[0], jitter_ms=0)
        elif kind:
            backoff = BackoffSpec.exponential(numbers[0], multiplier=numbers[1], max_ms=numbers[2], jitter_ms=0)
        delay = order.delay_ms / 1000 if order.delay_ms else None
        return await self.client.add(
            "job", order.data, attempts=order.attempts, backoff=backoff, delay=delay, job_id=order.job_id
        )

    async def cancel(self, job_id: str) -> bool:
        return bool(await self.client.cancel(job_id))

    async def repeat(self, repeat: Repeat) -> str:
        return str(
            await self.client.put_schedule(
                repeat.label,
                repeat.data,
                every=MINUTE_MS / 1000,
                limit=repeat.limit,
                start=instant(repeat.bounds_ms[0]),
                end=instant(repeat.bounds_ms[1]),
                missed_fires=repeat.policy,
                max_catchup=repeat.most,
            )
        )

    async def replay(self, number: int) -> int:
        return int(await self.client.replay_dead_letters(number))

    async def put_bulk(self, orders: list[JobOrder]) -> list[Any]:
        return list(await self.client.add_bulk([NewChasquiJob("job", order.data) for order in orders]))

    async def remove(self, key: str) -> bool:
        return bool(await self.client.remove_schedule(key))

    async def listed(self) -> list[Any]:
        specs = [found.spec for found in await self.client.schedules()]
        return [(spec.job_name, spec.limit or 0, spec.missed_fires) for spec in specs if spec]

    async def found_results(self, job_ids: list[str]) -> list[Any]:
        return list(await self.client.find_results(job_ids))

    async def found_letters(self) -> list[tuple[str, str]]:
        return [(letter.name, letter.reason) for letter in await self.client.dead_letters(100)]


class Theirs(Side):
    async def put(self, order: JobOrder) -> Any:
        kind, *numbers = order.backoff or ("",)
        backoff = None
        if kind == "fixed":
            backoff = chasquimq.BackoffSpec.fixed(numbers[0], jitter_ms=0)
        elif kind:
            backoff = chasquimq.BackoffSpec.exponential(
                numbers[0], multiplier=numbers[1], max_ms=numbers[2], jitter_ms=0
            )
        return await self.client.add(
            "job",
            order.data,
            attempts=order.attempts,
            backoff=backoff,
            delay_ms=order.delay_ms or None,
            job_id=order.job_id,
        )

    async def cancel(self, job_id: str) -> bool:
        return bool(await self.client.cancel_delayed(job_id))

    async def repeat(self, repeat: Repeat) -> str:
        policies = chasquimq.MissedFiresPolicy
        policy = policies.fire_all(repeat.most) if repeat.policy == "fire_all" else getattr(policies, repeat.policy)()
        job = await self.client.upsert_repeatable_job(
            repeat.label,
            repeat.data,
            repeat=chasquimq.RepeatPattern.every(MINUTE_MS),
            limit=repeat.limit,
            start_after_ms=in_ms(repeat.bounds_ms[0]),
            end_before_ms=in_ms(repeat.bounds_ms[1]),
            missed_fires=policy,
        )
        return str(job.id)

    async def replay(self, number: int) -> int:
        return int(await self.client.replay_dlq(number))

    async def put_bulk(self, orders: list[JobOrder]) -> list[Any]:
        return list(await self.client.add_bulk([{"name": "job", "data": order.data} for order in orders]))

    async def remove(self, key: str) -> bool:
        return bool(await self.client.remove_repeatable_by_key(key))

    async def listed(self) -> list[Any]:
        metas = await self.client.get_repeatable_jobs()
        return [
            (meta.job_name, meta.limit or 0, meta.missed_fires.kind.replace("-", "_") if meta.missed_fires else "skip")
            for meta in metas
        ]

    async def found_results(self, job_ids: list[str]) -> list[Any]:
        return list(await self.client.get_job_result_bulk(job_ids))

    async def found_letters(self) -> list[tuple[str, str]]:
        return [(letter["name"] or "", letter["reason"]) for letter in await self.client.peek_dlq(100)]


def in_ms(from_now_ms: int | None) -> int | None:
    """A time in ms, from how far it is from now."""
    return None if from_now_ms is None else int(time.time() * 1000) + from_now_ms


def instant(from_now_ms: int | None) -> datetime | None:
    at = in_ms(from_now_ms)
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC)


@pytest.fixture
async def sides(server: Any, server_url: str) -> AsyncIterator[tuple[Side, Side]]:
    """Both, each with a worker."""
    with redis86(server_url.removeprefix("unix://")) as proxy:
        async with AsyncChasquiQueue("ours", url=server_url) as our_client:
            ours = Ours(our_client, ChasquiKeys("ours"), server, UnrecoverableError)
            their_client = chasquimq.Queue("theirs", redis_url=proxy)
            theirs = Theirs(their_client, ChasquiKeys("theirs"), server, chasquimq.UnrecoverableError)
            options: dict[str, Any] = {"store_results": True, "max_payload_bytes": LARGEST}
            async with (
                working("ours", ours.handle, server_url, attempts=ATTEMPTS, **options),
                their_worker("theirs", theirs.handle, proxy, max_attempts=ATTEMPTS, **options),
            ):
                yield ours, theirs
            await their_client.close()


async def run(side: Side, program: Program) -> dict[str, Any]:
    """Run a program to its end; return all that can be seen of it."""
    for step in program.steps:
        if isinstance(step, JobOrder):
            await side.add(step)
        elif isinstance(step, Cancel):
            side.replies.append(await side.cancel(step.job_id))
        else:
            side.server.xadd(side.keys.stream, step)
    for order, job in zip(program.in_bulk, await side.put_bulk(program.in_bulk), strict=True):
        side.labels.setdefault(job.id, order.label)
    seconds, _ = side.server.time()
    keys = {}
    for repeat in program.repeats:
        keys[await side.repeat(repeat)] = repeat
    for key, repeat in keys.items():
        side.server.zadd(side.keys.repeat, {key: seconds * 1000 - repeat.missed_ms})
    await settle(side)
    await side.read()
    for key, repeat in keys.items():
        if repeat.is_removed:
            side.replies += [await side.remove(key), await side.remove(key)]
    if program.replays:
        side.replies.append(await side.replay(100))
        await settle(side)
    outcome = side.outcome()
    side.clear()
    return outcome


async def settle(side: Side) -> None:
    """Wait until all has run, and each outcome is recorded: a result and an event come after the entry is gone."""
    await wait_until(side.is_quiet, "all to run")
    before: dict[str, Any] = {}
    while (now := side.outcome()) != before:
        before = now
        await asyncio.sleep(0.06)


async def test_random_programs_come_out_the_same(sides: tuple[Side, Side], request: pytest.FixtureRequest) -> None:
    ours, theirs = sides
    for seed in range(request.config.getoption("--fuzz-runs") or 8):
        program = Program(seed)
        mine, original = await asyncio.gather(run(ours, program), run(theirs, program))
        for name, value in mine.items():
            assert value == original[name], f"seed {seed}, {name}: {program}"
