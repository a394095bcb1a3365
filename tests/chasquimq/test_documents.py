"""What ChasquiMQ's documents state and no other test shows: `tests/seeds` names these tests."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq import (
    AsyncChasquiQueue,
    BackoffSpec,
    ChasquiJob,
    ChasquiQueue,
    ChasquiWorkerOptions,
    NewChasquiJob,
)
from orchestration_queue.wires.chasquimq.envelope import backoff_ms, split_member, unpack_envelope
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until


async def fail(job: ChasquiJob) -> None:
    raise RuntimeError("boom")


def test_all_keys_of_a_queue_begin_with_its_hash_tag() -> None:
    keys = ChasquiKeys("mail")
    named = {
        keys.stream: "stream",
        keys.dead_letters: "dlq",
        keys.delayed: "delayed",
        keys.repeat: "repeat",
        keys.spec("a::every:5"): "repeat:spec:a::every:5",
        keys.events: "events",
        keys.result("id"): "result:id",
        keys.marker("id"): "dlid:id",
        keys.index("id"): "didx:id",
        keys.promoter_lock: "promoter:lock",
        keys.scheduler_lock: "scheduler:lock",
    }
    assert {key: f"{{chasqui:mail}}:{suffix}" for key, suffix in named.items()} == {key: key for key in named}
    assert "prefix" not in inspect.signature(ChasquiQueue).parameters


async def test_a_server_has_no_other_keys_of_a_queue(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """After jobs that ran, failed for good, wait for a retry, are delayed or repeated, and have an id of their own."""

    async def work(job: ChasquiJob) -> str:
        if job.name != "good":
            raise RuntimeError("boom")
        return "done"

    await queue.add("good", job_id="taken")
    await queue.add("spent", attempts=1)
    await queue.add("flaky", attempts=2, backoff=600)
    await queue.add("late", delay=600, job_id="mine")
    key = await queue.put_schedule("tick", every=600)
    async with working(queue.name, work, server_url, store_results=True):
        await wait_until(lambda: server.exists(keys.result("taken")), "the result")
        await wait_until(lambda: server.xlen(keys.dead_letters), "the dead letter")
        await wait_until(lambda: server.zcard(keys.delayed) == 2, "the retry to wait")
        assert server.exists(keys.promoter_lock, keys.scheduler_lock) == 2
    suffixes = {found.decode().removeprefix(f"{{chasqui:{queue.name}}}:") for found in server.scan_iter()}
    named = {"stream", "dlq", "delayed", "repeat", f"repeat:spec:{key}", "events", "result:taken"}
    assert suffixes == named | {"dlid:taken", "dlid:mine", "didx:mine"}


def test_an_unknown_kind_of_backoff_is_exponential() -> None:
    spec = BackoffSpec.from_wire(["linear", 10, None, 2.0, 0])
    assert [backoff_ms(spec, failed, 0.5) for failed in (1, 2, 3)] == [10, 20, 40]


async def test_a_retry_acknowledges_and_delays_a_new_entry(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    job = await queue.add("flaky", 1, attempts=3, backoff=BackoffSpec.exponential(600_000, max_ms=600_000, jitter_ms=0))
    before = now_ms()
    async with working(queue.name, fail, server_url):
        await wait_until(lambda: server.zcard(keys.delayed), "the retry to wait")
    ((member, due),) = server.zrange(keys.delayed, 0, -1, withscores=True)
    parts = split_member(member)
    assert parts is not None
    envelope = unpack_envelope(parts[1])
    assert (parts[0], envelope.id, envelope.attempt) == ("flaky", job.id, 1)
    assert 0 <= due - before - 600_000 < 120_000
    assert (server.xlen(keys.stream), server.xpending(keys.stream, "default")["pending"]) == (0, 0)


async def test_the_dead_letter_queue_is_a_bounded_stream_without_a_group(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    await queue.add_bulk([NewChasquiJob("x", number, attempts=1) for number in range(450)])
    async with working(queue.name, fail, server_url, max_dead_letters=100):
        await wait_until(lambda: is_settled(server, keys), "all jobs to fail for good")
    assert 100 <= server.xlen(keys.dead_letters) < 450
    assert server.xinfo_groups(keys.dead_letters) == []
    assert (ChasquiWorkerOptions().max_dead_letters, ChasquiWorkerOptions().max_length) == (100_000, 1_000_000)


async def test_each_fire_of_a_schedule_is_a_new_job(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    seen: list[tuple[str, str]] = []

    async def note(job: ChasquiJob) -> None:
        seen.append((job.name, job.id))

    key = await queue.put_schedule("tick", every=0.05, limit=3)
    assert (key, server.xlen(keys.stream)) == ("tick::every:50", 0)
    async with working(queue.name, note, server_url):
        await wait_until(lambda: len(seen) == 3, "all fires to run")
    assert ({name for name, _ in seen}, len({job_id for _, job_id in seen})) == ({"tick"}, 3)


async def test_a_slow_handler_holds_up_no_other_job(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    done = asyncio.Event()
    ran: list[str] = []

    async def handle(job: ChasquiJob) -> None:
        if job.name == "slow":
            await done.wait()
        ran.append(job.name)

    await queue.add_bulk([NewChasquiJob("slow"), *[NewChasquiJob("quick")] * 20])
    async with working(queue.name, handle, server_url, concurrency=2):
        await wait_until(lambda: ran == ["quick"] * 20 and server.xlen(keys.stream) == 1, "the quick ones to end")
        done.set()
        await wait_until(lambda: is_settled(server, keys), "the slow one to end")


async def test_events_are_fields_of_plain_text(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    await queue.add("flaky", 1, attempts=2, backoff=BackoffSpec.fixed(5, jitter_ms=0))
    await queue.add("late", delay=0.01, attempts=1)
    async with working(queue.name, fail, server_url):
        await wait_until(lambda: server.xlen(keys.dead_letters) == 2 and is_settled(server, keys), "both to fail")
        await wait_until(
            lambda: sum(entry[b"e"] == b"dlq" for _, entry in server.xrange(keys.events)) == 2, "their last events"
        )
    entries = [
        {name.decode(): value.decode() for name, value in entry.items()} for _, entry in server.xrange(keys.events)
    ]
    fields: dict[str, set[str]] = {}
    for entry in entries:
        fields.setdefault(entry["e"], set()).update(entry)
        assert all(entry[name].isdecimal() for name in ("ts", "attempt", "backoff_ms", "duration_us") if name in entry)
    common = {"e", "id", "ts"}
    assert fields.keys() <= {"active", "failed", "retry-scheduled", "waiting", "dlq", "drained"}
    assert fields["active"] == common | {"n", "attempt"}
    assert fields["failed"] == common | {"n", "attempt", "reason", "duration_us"}
    assert fields["retry-scheduled"] == common | {"n", "attempt", "backoff_ms"}
    assert fields["waiting"] == common
    assert fields["dlq"] == common | {"n", "attempt", "reason"}
