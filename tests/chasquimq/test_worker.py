"""The worker, by what it leaves on the server: acknowledgements, retries, dead letters, results, events."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.errors import UnrecoverableError, UsageError
from orchestration_queue.tasks import Depends, Tasks
from orchestration_queue.wires.chasquimq import (
    AsyncChasquiQueue,
    BackoffSpec,
    ChasquiJob,
    ChasquiWorker,
    ChasquiWorkerOptions,
    NewChasquiJob,
)
from orchestration_queue.wires.chasquimq import reader as reading
from orchestration_queue.wires.chasquimq.envelope import Envelope, RetryOverride, pack_envelope, unpack_envelope
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.packing import pack
from orchestration_queue.wires.chasquimq.repeat import ChasquiCron, EveryPattern, RepeatSpec
from tests.chasquimq.vectors import VECTORS
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until


def events(server: Any, keys: ChasquiKeys) -> list[dict[str, str]]:
    """All events, without their times."""
    found = []
    for _, flat in server.xrange(keys.events):
        fields = {name.decode(): value.decode() for name, value in flat.items()}
        found.append({name: value for name, value in fields.items() if name not in ("ts", "duration_us")})
    return found


def count(server: Any, command: str) -> int:
    """How often the server has run this command."""
    return int(server.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


async def test_jobs_run_in_coroutines_and_threads_and_leave_nothing(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    seen: list[tuple[str, Any, bool]] = []
    main = threading.current_thread()

    async def on_loop(job: ChasquiJob) -> None:
        seen.append((job.name, job.data, threading.current_thread() is main))

    def in_thread(job: ChasquiJob) -> None:
        seen.append((job.name, job.data, threading.current_thread() is main))

    class Router:
        def handler(self, name: str) -> Any:
            return on_loop if name == "loop" else in_thread

    await queue.add_bulk([NewChasquiJob("loop", number) for number in range(50)] + [NewChasquiJob("thread", [1])])
    async with working(queue.name, Router(), server_url):
        await wait_until(lambda: len(seen) == 51 and is_settled(server, keys), "all jobs to run")
    assert sorted(seen, key=str) == sorted([("loop", n, True) for n in range(50)] + [("thread", [1], False)], key=str)
    pending = server.xpending(keys.stream, "default")
    assert pending["pending"] == 0
    assert not server.xinfo_consumers(keys.stream, "default")
    assert {key.decode() for key in server.scan_iter()} == {keys.stream, keys.events}


async def test_middleware_surrounds_each_run_and_decides_its_outcome(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    said: list[str] = []

    async def outer(job: ChasquiJob, call_next: Any) -> Any:
        said.append(f"outer {job.name}")
        result = await call_next()
        said.append(f"result {result}")
        return result

    async def inner(job: ChasquiJob, call_next: Any) -> Any:
        if job.name == "refused":
            raise UnrecoverableError("not today")
        return [await call_next(), "inner"]

    def handle(job: ChasquiJob) -> str:
        return f"ran {job.name}"

    async with working(queue.name, handle, server_url, middleware=[outer, inner], store_results=True):
        fine = await queue.add("fine", None)
        await wait_until(lambda: is_settled(server, keys), "the job to run")
        refused = await queue.add("refused", None)
        await wait_until(lambda: is_settled(server, keys) and server.xlen(keys.dead_letters), "the job to be refused")
    assert said == ["outer fine", "result ['ran fine', 'inner']", "outer refused"]
    assert await queue.find_results([fine.id, refused.id]) == [["ran fine", "inner"], None]


async def test_events_are_those_of_the_original(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    attempts: list[int] = []

    async def flaky(job: ChasquiJob) -> None:
        attempts.append(job.attempt)
        raise RuntimeError("boom")

    job = await queue.add("flaky", {"a": 1}, attempts=3, backoff=BackoffSpec.fixed(20, jitter_ms=0))
    async with working(queue.name, flaky, server_url):
        await wait_until(lambda: server.xlen(keys.dead_letters), "the job to fail for good")
        await wait_until(lambda: events(server, keys)[-1]["e"] in ("dlq", "drained"), "its last event")
    assert attempts == [0, 1, 2]
    stored = VECTORS["retry_then_dlq"]["keys_after"]["{chasqui:vec-wrk}:events"]["entries"]
    theirs = [
        {name: value for name, value in entry["fields"] if name not in ("ts", "duration_us", "id")} for entry in stored
    ]
    ours = [{name: value for name, value in event.items() if name != "id"} for event in events(server, keys)]

    def in_order(found: list[dict[str, str]]) -> list[dict[str, str]]:
        # `waiting` is written beside `active`, and `drained` by a reader that has its own pace.
        return [event for event in found if event["e"] not in ("waiting", "drained")]

    assert in_order(ours) == in_order(theirs)
    assert [event["e"] for event in ours].count("waiting") == 2
    assert all(event["id"] == job.id for event in events(server, keys) if event["e"] != "drained")
    ((_, letter),) = server.xrange(keys.dead_letters)
    assert list(letter) == [b"d", b"n", b"source_id", b"reason", b"detail"]
    assert (letter[b"n"], letter[b"reason"], letter[b"detail"]) == (b"flaky", b"retries_exhausted", b"boom")
    assert unpack_envelope(letter[b"d"]).attempt == 2


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


async def test_an_error_without_words_fails_its_job_like_any_other(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    async def fail(job: ChasquiJob) -> None:
        raise UnspeakableError if job.data is None else RuntimeError(job.data)

    for data in (None, "half of a pair: \\ud800"):
        await queue.add("wordless", data, attempts=1)

    async def decoded(job: ChasquiJob) -> None:
        await fail(replace(job, data=job.data and job.data.encode().decode("unicode_escape")))

    async with working(queue.name, decoded, server_url):
        await wait_until(lambda: server.xlen(keys.dead_letters) == 2, "both jobs to fail for good")
        await wait_until(lambda: sum(event["e"] == "dlq" for event in events(server, keys)) == 2, "their last events")
    details = [letter[b"detail"] for _, letter in server.xrange(keys.dead_letters)]
    assert details == [b"(its __str__ raised ValueError)", b"half of a pair: \\ud800"]


async def test_an_unrecoverable_error_ends_a_job_at_once(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    def hopeless(job: ChasquiJob) -> None:
        raise UnrecoverableError("no such file")

    await queue.add("x")
    async with working(queue.name, hopeless, server_url):
        await wait_until(lambda: server.xlen(keys.dead_letters), "the job to fail for good")
    (letter,) = await queue.dead_letters()
    assert (letter.reason, letter.detail, letter.name) == ("unrecoverable", "no such file", "x")
    assert is_settled(server, keys)


async def test_results_are_kept_for_their_time(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    async def echo(job: ChasquiJob) -> Any:
        return job.data

    values = [{"echo": 0}, False, 0, "", b"", [], None]
    jobs = await queue.add_bulk([NewChasquiJob("echo", value) for value in values])
    ttl = timedelta(milliseconds=90_500)
    async with working(queue.name, echo, server_url, store_results=True, result_ttl=ttl):
        await wait_until(lambda: is_settled(server, keys), "all jobs to run")
    assert await queue.find_results([job.id for job in jobs]) == values
    assert server.get(keys.result(jobs[0].id)) == bytes.fromhex("81a46563686f00")
    assert 85 < server.ttl(keys.result(jobs[0].id)) <= 91
    assert not server.exists(keys.result(jobs[-1].id))


async def test_entries_of_every_broken_kind_become_dead_letters_and_the_worker_lives(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    ran: list[str] = []

    async def note(job: ChasquiJob) -> None:
        ran.append(job.id)

    spent = pack_envelope(Envelope("spent", pack(1), 1, attempt=3, retry=RetryOverride(3)))
    for fields in (
        {"x": "1"},
        {"d": b"\xc1", "n": "undecodable"},
        {"d": b"x" * 301, "n": "large"},
        {"d": spent, "n": "spent"},
        {"d": pack_envelope(Envelope("inner", b"\xc1", 1)), "n": "inner"},
    ):
        server.xadd(keys.stream, fields)
    server.zadd(keys.delayed, {b"\x01\x00": 1, b"\x64\x00\x00\x00abc": 1})
    good = await queue.add("good", "data")
    async with working(queue.name, note, server_url, max_payload_bytes=300):
        await wait_until(lambda: server.xlen(keys.dead_letters) == 7 and is_settled(server, keys), "dead letters")
        assert ran == [good.id]
        await queue.add("good")
        await wait_until(lambda: len(ran) == 2, "the worker to continue")
    letters = {(letter.reason, letter.name): letter for letter in await queue.dead_letters()}
    assert sorted(reason for reason, _ in letters) == sorted(
        ["malformed", "decode_failed", "oversize_payload", "retries_exhausted", "decode_failed"]
    )
    assert letters["oversize_payload", "large"].envelope == b"x" * 301
    assert letters["decode_failed", ""].envelope == b"\xc1"
    assert letters["retries_exhausted", "spent"].job_id == "spent"
    malformed = sorted(letter.envelope for letter in await queue.dead_letters() if letter.reason == "malformed")
    assert malformed == [b"", b"\x01\x00", b"\x64\x00\x00\x00abc"]


async def test_a_dead_workers_job_is_taken_over(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    job = await queue.add("x")
    server.xgroup_create(keys.stream, "default", "0")
    server.xreadgroup("default", "dead", {keys.stream: ">"})
    seen: list[tuple[str, int]] = []

    async def note(job: ChasquiJob) -> None:
        seen.append((job.id, job.attempt))

    async with working(queue.name, note, server_url, lease=timedelta(milliseconds=200)):
        await wait_until(lambda: seen and is_settled(server, keys), "the job to be taken over")
    assert seen == [(job.id, 1)]


async def test_a_paused_queue_starts_no_job(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    seen: list[str] = []

    async def note(job: ChasquiJob) -> None:
        seen.append(job.id)

    await queue.pause()
    await queue.add("x")
    before = count(server, "exists")
    async with working(queue.name, note, server_url):
        await wait_until(lambda: count(server, "exists") >= before + 3, "the worker to ask whether the queue is paused")
        assert seen == []
        await queue.resume()
        await wait_until(lambda: seen, "the job to run")


async def test_a_pause_ends_the_read_that_waits(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def note(job: ChasquiJob) -> None:
        seen.append(job.name)

    # The read must be ended by the pause, not by its own time.
    monkeypatch.setattr(reading, "_BLOCK_S", 60.0)
    async with working(queue.name, note, server_url):
        for number in range(3):
            await wait_until(lambda: server.info("clients")["blocked_clients"], "the worker to wait for jobs")
            before = count(server, "client|unblock")
            await queue.pause()
            await wait_until(lambda before=before: count(server, "client|unblock") > before, "the read to be ended")  # type: ignore[misc]
            before = count(server, "exists")
            await wait_until(lambda before=before: count(server, "exists") >= before + 2, "the worker to ask again")  # type: ignore[misc]
            await queue.add(f"job {number}")
            before = count(server, "exists")
            await wait_until(lambda before=before: count(server, "exists") >= before + 2, "the worker to ask again")  # type: ignore[misc]
            assert len(seen) == number
            assert server.xpending(keys.stream, "default")["pending"] == 0
            await queue.resume()
            await wait_until(lambda number=number: len(seen) == number + 1, "the job to run")  # type: ignore[misc]
    assert seen == ["job 0", "job 1", "job 2"]


async def test_a_busy_worker_heeds_a_pause_beside_its_reads(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    seen: list[str] = []
    is_adding = True

    async def note(job: ChasquiJob) -> None:
        seen.append(job.id)
        if is_adding:
            await queue.add("next")

    await queue.add_bulk([NewChasquiJob("x")] * 3)
    async with working(queue.name, note, server_url, concurrency=2):
        await wait_until(lambda: len(seen) > 20, "the worker to be busy")
        await queue.pause()
        before = count(server, "exists")
        await wait_until(lambda: count(server, "exists") >= before + 4, "the worker to ask again and again")
        assert server.xpending(keys.stream, "default")["pending"] == 0
        assert server.xlen(keys.stream) == 3
        is_adding = False
        await queue.resume()
        await wait_until(lambda: is_settled(server, keys), "the rest to run")


async def test_a_paused_queue_is_not_reported_as_drained(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(job: ChasquiJob) -> None:
        await wait_until(lambda: server.info("clients")["blocked_clients"], "the worker to wait for more")
        await queue.pause()

    # The read must be ended by the pause, not by its own time.
    monkeypatch.setattr(reading, "_BLOCK_S", 60.0)
    before = count(server, "client|unblock")
    async with working(queue.name, work, server_url):
        await queue.add("x")
        await wait_until(lambda: count(server, "client|unblock") > before, "the read to be ended")
        for _ in range(2):
            asked = count(server, "exists")
            await wait_until(lambda asked=asked: count(server, "exists") >= asked + 2, "the worker to ask again")  # type: ignore[misc]
            await queue.add("y")
        assert [event["e"] for event in events(server, keys)] == ["active", "completed"]
        assert server.xlen(keys.stream) == 2


async def test_delayed_and_repeated_jobs_run_when_they_are_due(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    seen: list[str] = []

    async def note(job: ChasquiJob) -> None:
        seen.append(job.name)

    await queue.add("later", delay=0.2, job_id="mine")
    key = await queue.put_schedule("tick", every=0.1, limit=3)
    async with working(queue.name, note, server_url):
        await wait_until(lambda: sorted(seen) == ["later", "tick", "tick", "tick"], "all to run")
        await wait_until(lambda: is_settled(server, keys), "the queue to be empty")
    assert not server.exists(keys.repeat)
    assert not server.exists(keys.spec(key))
    assert not server.exists(keys.index("mine"))
    assert server.exists(keys.marker("mine"))
    assert not server.exists(keys.promoter_lock, keys.scheduler_lock)


async def test_two_schedulers_fire_once(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    seen: list[str] = []

    async def note(job: ChasquiJob) -> None:
        seen.append(job.id)

    await queue.put_schedule("tick", every=0.05, limit=10, missed_fires="fire_all", max_catchup=100)
    async with working(queue.name, note, server_url), working(queue.name, note, server_url):
        # Every worker leads at some time: the lock is taken from its holder.
        while len(seen) < 10:
            server.delete(keys.scheduler_lock)
            await asyncio.sleep(0.02)
        await wait_until(lambda: is_settled(server, keys), "the queue to be empty")
    assert len(seen) == len(set(seen)) == 10


async def test_times_that_nobody_can_reach_stop_no_schedule(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    far = RepeatSpec("far", EveryPattern(2**63), pack(None), "far").pack()
    later = RepeatSpec("cron", ChasquiCron("* * * * *"), pack(None), "later", start_after_ms=2**63).pack()
    for key, packed, score in (("far", far, 1), ("later", later, 1), ("first", far, "-inf"), ("last", far, "+inf")):
        server.hset(keys.spec(key), "spec", packed)
        server.zadd(keys.repeat, {key: score})
    await queue.put_schedule("tick", every=0.05, limit=2)
    assert len(await queue.schedules()) == 5
    seen: list[str] = []

    async def note(job: ChasquiJob) -> None:
        seen.append(job.name)

    async with working(queue.name, note, server_url):
        await wait_until(lambda: seen.count("tick") == 2, "the good one to fire")
    assert server.zscore(keys.repeat, "last") == float("inf")


async def test_jobs_that_do_not_end_in_time_are_left_to_others(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    started = asyncio.Event()

    async def endless(job: ChasquiJob) -> None:
        started.set()
        await asyncio.Event().wait()

    await queue.add("x")
    async with working(queue.name, endless, server_url, shutdown_timeout=timedelta(0)):
        await asyncio.wait_for(started.wait(), 60)
    assert server.xpending(keys.stream, "default")["pending"] == 1


async def test_tasks_serve_a_queue(queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str) -> None:
    tasks = Tasks()

    def factor() -> int:
        return 10

    @tasks.task
    def total(a: int, b: int, factor: int = Depends(factor)) -> int:
        return (a + b) * factor

    @tasks.task
    async def size(raw: bytes) -> int:
        return len(raw)

    jobs = [await queue.add("total", {"a": 1, "b": 2}), await queue.add("size", {"raw": b"\x00\xff"})]
    await queue.add("unknown")
    await queue.add("total", {"a": "x"})
    async with working(queue.name, tasks, server_url, store_results=True):
        await wait_until(lambda: is_settled(server, keys), "all jobs to end")
    assert await queue.find_results([job.id for job in jobs]) == [30, 2]
    assert [letter.reason for letter in await queue.dead_letters()] == ["unrecoverable"] * 2


async def test_a_stop_from_another_thread_ends_the_worker(server: Any, server_url: str, queue_name: str) -> None:
    worker = ChasquiWorker(queue_name, print, url=server_url)
    task = asyncio.ensure_future(worker.run())
    await wait_until(lambda: server.exists(ChasquiKeys(queue_name).stream), "the worker to join")
    await asyncio.to_thread(worker.stop)
    await asyncio.wait_for(task, 60)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChasquiWorker("q", 5),  # type: ignore[arg-type]  # the mistake under test
        lambda: ChasquiWorker("", print),
        lambda: ChasquiWorker("q", print, options=5),  # type: ignore[arg-type]  # the mistake under test
        lambda: ChasquiWorker("q", print, url="nonsense://x"),
        lambda: ChasquiWorkerOptions(concurrency=0),
        lambda: ChasquiWorkerOptions(lease=0),
        lambda: ChasquiWorkerOptions(nonsense=1),  # type: ignore[call-arg]  # the mistake under test
    ],
)
def test_mistakes_are_refused_at_once(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


async def test_an_idle_worker_stops_without_waiting_for_its_read(
    queue: AsyncChasquiQueue, server: Any, server_url: str
) -> None:
    async def work(job: ChasquiJob) -> None:
        pass

    def unblocked() -> int:
        return int(server.info("commandstats").get("cmdstat_client|unblock", {}).get("calls", 0))

    before = unblocked()
    async with working(queue.name, work, server_url):
        await wait_until(lambda: server.info("clients")["blocked_clients"], "a read that waits")
    assert unblocked() > before
