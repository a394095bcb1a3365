"""Malformed entries of every kind: each becomes a dead letter with its reason, and worker and scheduler continue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from orchestration_queue.errors import PayloadError
from orchestration_queue.server import Connection
from orchestration_queue.wires.chasquimq import AsyncChasquiEvents, AsyncChasquiQueue, BackoffSpec, ChasquiJob
from orchestration_queue.wires.chasquimq.doctor import QUEUE_CHECKS, InspectedChasquiQueue
from orchestration_queue.wires.chasquimq.entries import find_envelope
from orchestration_queue.wires.chasquimq.envelope import join_member, split_member
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.options import ChasquiWorkerOptions
from orchestration_queue.wires.chasquimq.reader import ChasquiDelivery, check_entry
from orchestration_queue.wires.chasquimq.repeat import RepeatSpec
from tests.chasquimq.test_codec import MEMBERS, SPECS, WRITTEN
from tests.chasquimq.working import working
from tests.waiting import wait_until

REASONS = {"malformed", "oversize_payload", "decode_failed", "retries_exhausted", "unrecoverable"}
ODD: list[Any] = [
    *(None, True, False, -1, 0, 2**32, 2**53 + 1, 2**64 - 1, -(2**63), 1.5, float("nan"), float("inf"), "", "x", b""),
    *(b"\xff\xfe", "\x00", "é" * 300, [], [[]], {}, {"id": 1}, {1: 2}, {"Every": [0]}, {"Every": [2**63]}),
    *({"Cron": ["* * * * *", "Mars/X"]}, {"Cron": ["99 * * * *", None]}, {"FireAll": [2**64 - 1]}, "FireOnce"),
    *(msgpack.ExtType(5, b"x"), msgpack.Timestamp(2**32), [1] * 20),
]
MULTIPLIERS = [float("nan"), float("inf"), -float("inf"), -2.0, 1e308, 0.0]


class Fuzz:
    """Makes malformed bytes of well-formed ones; the seed repeats a run."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def damaged(self, sound: list[bytes]) -> bytes:
        """Bytes that were written by a client, and then damaged in one or two ways."""
        packed = self.chance.choice(sound)
        for _ in range(self.chance.randint(1, 2)):
            packed = self.chance.choice(self.damages())(packed)
        return packed

    def damages(self) -> list[Callable[[bytes], bytes]]:
        return [
            self.flip,
            self.truncate,
            self.insert,
            self.replace,
            self.replace,
            self.replace,
            self.lengthen,
            self.noise,
        ]

    def flip(self, packed: bytes) -> bytes:
        at = self.chance.randrange(len(packed) or 1)
        return packed[:at] + self.chance.randbytes(1) + packed[at + 1 :]

    def truncate(self, packed: bytes) -> bytes:
        return packed[: self.chance.randrange(len(packed) + 1)]

    def insert(self, packed: bytes) -> bytes:
        at = self.chance.randrange(len(packed) + 1)
        return packed[:at] + self.chance.randbytes(self.chance.randint(1, 8)) + packed[at:]

    def lengthen(self, packed: bytes) -> bytes:
        """Claim more than there is: the headers of a text, an array, a map and bytes of 4 GiB, and deep nesting."""
        header = self.chance.choice([b"\xdb", b"\xdd", b"\xdf", b"\xc6", b"\xc9"]) + b"\xff\xff\xff\xff"
        return self.chance.choice([header + packed, packed[:1] + header, b"\x91" * 3000 + packed])

    def noise(self, packed: bytes) -> bytes:
        return self.chance.randbytes(self.chance.randint(0, 60))

    def replace(self, packed: bytes) -> bytes:
        """Put a value of another kind in one place of a well-formed struct, drop one, or add one."""
        try:
            value = msgpack.unpackb(packed, strict_map_key=False)
        except (ValueError, TypeError):
            return packed
        place = value
        while isinstance(place, list) and place:
            at = self.chance.randrange(len(place))
            if isinstance(place[at], list) and self.chance.random() < 0.5:
                place = place[at]
                continue
            act = self.chance.randrange(4)
            if act == 0:
                place.pop(at)
            elif act == 1:
                place.insert(at, self.chance.choice(ODD))
            else:
                place[at] = self.chance.choice(MULTIPLIERS if isinstance(place[at], float) else ODD)
            break
        return bytes(msgpack.packb(value))

    def entry(self) -> dict[bytes, bytes]:
        """The fields of a stream entry."""
        fields = {b"d": self.damaged(WRITTEN), b"n": self.chance.choice([b"mail", b"", b"\xff\xfe", b"x" * 5000])}
        if self.chance.random() < 0.1:
            fields[self.chance.choice([b"d", b"n", b"x", b""])] = self.chance.randbytes(9)
        if self.chance.random() < 0.1:
            fields.pop(b"d", None)
        return fields

    def member(self) -> bytes:
        """A member of the delayed set: damaged itself, around a damaged envelope, or of a name that is no text."""
        prefix = self.chance.randint(0, 2**32 - 1).to_bytes(4, "little")
        return self.chance.choice(
            [
                self.damaged([bytes.fromhex(member) for member in MEMBERS]),
                join_member("mail", self.damaged(WRITTEN)),
                prefix + self.damaged(WRITTEN),
                b"\2\0\0\0\xff\xfe" + self.damaged(WRITTEN),
            ]
        )

    def spec(self) -> bytes:
        """The spec of a repeatable job."""
        return self.damaged([bytes.fromhex(spec) for spec in SPECS])


@pytest.mark.parametrize("seed", range(3))
async def test_every_entry_runs_or_becomes_a_dead_letter_with_its_reason(
    seed: int, queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    fuzz = Fuzz(seed)
    # Jobs of one id would wait for their second attempts as one member.
    taken: set[str] = set()
    entries = [fields for _ in range(300) if is_new(taken, (fields := fuzz.entry()).get(b"d", b""))]
    members = {member for _ in range(100) if is_new(taken, (split_member(member := fuzz.member()) or ("", b""))[1])}
    for fields in entries:
        server.xadd(keys.stream, fields)
    server.zadd(keys.delayed, dict.fromkeys(members, 1))
    ran: list[str] = []

    async def fail(job: ChasquiJob) -> None:
        ran.append(job.id)
        if job.name != "good":
            raise RuntimeError("once more")

    async with working(queue.name, fail, server_url, attempts=2, max_payload_bytes=4000):
        await wait_until(lambda: is_decided(server, keys), "all entries to be decided")
        good = await queue.add("good")
        await wait_until(lambda: good.id in ran, "the worker to continue")
        await wait_until(lambda: is_decided(server, keys), "the outcomes to be recorded")
    letters = await queue.dead_letters(2000)
    assert {letter.reason for letter in letters} <= REASONS
    waiting = server.zcard(keys.delayed) + server.xlen(keys.stream)
    assert len(letters) + waiting == len(entries) + len(members)
    runnable = sum(is_runnable(fields[b"d"]) for fields in entries if b"d" in fields)
    runnable += sum(is_runnable(parts[1]) for member in members if (parts := split_member(member)))
    spent = sum(letter.reason == "retries_exhausted" for letter in letters)
    assert spent + waiting >= runnable > 0


def is_decided(server: Any, keys: ChasquiKeys) -> bool:
    """Whether no job is ready, running or due: each is dead, or waits for a second attempt."""
    seconds, _ = server.time()
    return not any(server.pipeline().xlen(keys.stream).zcount(keys.delayed, "-inf", seconds * 1000 + 1000).execute())


def is_new(taken: set[str], packed: bytes) -> bool:
    """Whether no job of this id was there."""
    envelope = find_envelope(packed)
    if envelope is None:
        return True
    is_first = envelope.id not in taken
    taken.add(envelope.id)
    return is_first


def is_runnable(packed: bytes) -> bool:
    """Whether a worker hands the job to its handler."""
    options = ChasquiWorkerOptions(attempts=2, max_payload_bytes=4000)
    return isinstance(check_entry("q", "1-1", [b"d", packed], 0, options), ChasquiDelivery)


def is_drained(server: Any, keys: ChasquiKeys) -> bool:
    """Whether no job is ready, running, or due within a minute."""
    seconds, _ = server.time()
    return not any(server.pipeline().xlen(keys.stream).zcount(keys.delayed, "-inf", (seconds + 60) * 1000).execute())


async def test_a_job_whose_backoff_ends_in_another_age_waits_for_it(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    def fail(job: ChasquiJob) -> None:
        raise RuntimeError("boom")

    backoff = BackoffSpec("fixed", 2**64 - 1, max_delay_ms=2**64 - 1, jitter_ms=2**64 - 1)
    await queue.add("x", backoff=backoff)
    async with working(queue.name, fail, server_url):
        await wait_until(lambda: server.zcard(keys.delayed), "the retry to be recorded")
    assert not server.xlen(keys.stream)


@pytest.mark.parametrize("seed", range(3))
async def test_every_spec_fires_stays_or_becomes_a_dead_letter(
    seed: int, queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    fuzz = Fuzz(seed)
    specs = {f"spec {number}".encode(): fuzz.spec() for number in range(200)}
    specs |= {b"\xff\xfe": fuzz.spec(), "é * : \n".encode(): fuzz.spec(), b"": fuzz.spec()}
    for key, packed in specs.items():
        server.hset(keys.spec("").encode() + key, "spec", packed)
        server.zadd(keys.repeat, {key: 1})
    server.set(keys.spec("of another type"), "text")
    server.zadd(keys.repeat, {"of another type": 1, "without a spec": 1})
    seen: list[str] = []

    async def note(job: ChasquiJob) -> None:
        seen.append(job.name)

    await queue.put_schedule("good", every=0.05)
    async with working(queue.name, note, server_url):
        await wait_until(lambda: seen.count("good") >= 3, "the good one to fire")
        await wait_until(lambda: not lasting(server, keys, specs), "each that cannot be read to become a dead letter")
        await wait_until(lambda: seen.count("good") >= 5, "the good one to run")
    dead = {letter.envelope for letter in await queue.dead_letters(2000) if letter.reason == "malformed"}
    assert {packed for packed in specs.values() if not is_readable(packed)} <= dead


def lasting(server: Any, keys: ChasquiKeys, specs: dict[bytes, bytes]) -> list[bytes]:
    """The specs that cannot be read and yet are there."""
    return [key for key in server.zrange(keys.repeat, 0, -1) if key in specs and not is_readable(specs[key])]


def is_readable(packed: bytes) -> bool:
    try:
        RepeatSpec.unpack(packed)
    except PayloadError:
        return False
    return True


@pytest.mark.parametrize("seed", range(3))
async def test_what_reads_a_queue_reads_past_what_it_cannot_read(
    seed: int, queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    fuzz = Fuzz(seed)
    for number in range(200):
        server.xadd(keys.stream, fuzz.entry())
        server.xadd(keys.dead_letters, fuzz.entry() | {b"reason": fuzz.chance.randbytes(3)})
        server.xadd(keys.events, fuzz.entry() | {b"e": fuzz.chance.randbytes(3), b"ts": fuzz.chance.randbytes(2)})
        server.zadd(keys.delayed, {fuzz.member(): fuzz.chance.choice([1, "-inf", "+inf", 1e300])})
        server.hset(keys.spec("").encode() + b"%d \xff" % number, "spec", fuzz.spec())
        server.zadd(keys.repeat, {b"%d \xff" % number: fuzz.chance.choice([1, "-inf", "+inf"])})
    assert (await queue.counts()).ready == 200
    assert await queue.list_jobs(1000)
    assert await queue.list_delayed(1000)
    assert len(await queue.schedules(1000)) == 200
    assert len(await queue.dead_letters(1000)) == 200
    async with AsyncChasquiEvents(queue.name, url=server_url, after="0") as events:
        assert len(await events.read(limit=1000)) == 200

    def inspect() -> None:
        with Connection.open(server_url, libraries=()) as connection:
            inspected = InspectedChasquiQueue(keys, connection)
            assert [finding for check in QUEUE_CHECKS for finding in check(inspected)]

    await asyncio.to_thread(inspect)
    assert await queue.replay_dead_letters() > 0
