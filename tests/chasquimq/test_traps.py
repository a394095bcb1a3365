"""What the original gets wrong, trap by trap, and what happens here instead.

Each was seen of chasquimq 1.3.0. A test's name begins with the number that our record of that wire gives the trap.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.doctor.finding import Severity
from orchestration_queue.errors import OrchestrationQueueError, UnrecoverableError
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms, travel
from orchestration_queue.wires.chasquimq import (
    AsyncChasquiQueue,
    ChasquiCounts,
    ChasquiJob,
    ChasquiQueue,
    ChasquiWorker,
    ChasquiWorkerOptions,
    NewChasquiJob,
)
from orchestration_queue.wires.chasquimq.doctor import InspectedChasquiQueue, chasquimq_growth
from orchestration_queue.wires.chasquimq.envelope import Envelope, RetryOverride, pack_envelope
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.packing import pack
from orchestration_queue.wires.chasquimq.reader import ChasquiDelivery, Rejection, check_entry
from orchestration_queue.wires.chasquimq.repeat import EveryPattern, RepeatSpec, due_fires
from tests.chasquimq.redis86 import IS_REAL
from tests.chasquimq.vectors import VECTORS
from tests.chasquimq.working import is_settled, working
from tests.conftest import start_server
from tests.waiting import wait_until

LEASE = timedelta(milliseconds=400)


class Recorder:
    """A handler that keeps what it ran."""

    def __init__(self) -> None:
        self.jobs: list[ChasquiJob] = []

    async def __call__(self, job: ChasquiJob) -> None:
        self.jobs.append(job)

    @property
    def names(self) -> list[str]:
        return [job.name for job in self.jobs]


async def test_t1_a_long_job_that_blocks_the_loop_keeps_its_lease(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original starts it again, in parallel."""
    starts = []
    release = threading.Event()

    def long(job: ChasquiJob) -> None:
        starts.append(job.attempt)
        release.wait(60)

    def renewals() -> int:
        stats = server.info("commandstats")
        return int(stats.get("cmdstat_xclaim", {}).get("calls", 0))

    await queue.add("long")
    before = renewals()
    async with (
        working(queue.name, long, server_url, lease=LEASE),
        working(queue.name, long, server_url, lease=LEASE),
    ):
        await wait_until(lambda: renewals() >= before + 6, "the lease to be renewed for longer than it lasts")
        assert starts == [0]
        release.set()
        await wait_until(lambda: is_settled(server, keys), "the job to end")
    assert starts == [0]


async def test_t1_no_more_jobs_are_read_than_have_a_slot(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """What the original prefetches outlives its lease while it waits for a slot."""
    go, most = asyncio.Event(), 0

    async def wait(job: ChasquiJob) -> None:
        await go.wait()

    await queue.add_bulk([NewChasquiJob("x")] * 10)
    async with working(queue.name, wait, server_url, concurrency=3) as worker:
        await wait_until(lambda: worker.running == 3, "three jobs to run")
        most = server.xpending(keys.stream, "default")["pending"]
        go.set()
        await wait_until(lambda: is_settled(server, keys), "all jobs to run")
    assert most == 3


def test_t2_a_job_whose_workers_die_starts_as_often_as_its_attempts_say() -> None:
    """The original starts it once more."""
    packed = pack_envelope(Envelope("a", pack(None), 1, retry=RetryOverride(3)))
    starts = []
    for deliveries in range(5):
        taken = check_entry("q", "1-1", [b"d", packed], deliveries, ChasquiWorkerOptions())
        if isinstance(taken, ChasquiDelivery):
            starts.append(taken.attempt)
        else:
            assert isinstance(taken, Rejection)
            assert (taken.reason, taken.attempt) == ("retries_exhausted", deliveries)
    assert starts == [1, 2, 3]


async def test_t2_a_job_that_two_workers_died_of_is_dead_after_two_attempts(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    job = await queue.add("x", attempts=2)
    server.xgroup_create(keys.stream, "default", "0")
    (((_, ((entry, _),)),)) = server.xreadgroup("default", "first", {keys.stream: ">"})
    server.xclaim(keys.stream, "default", "second", 0, [entry])
    ran = Recorder()
    async with working(queue.name, ran, server_url, lease=LEASE):
        await wait_until(lambda: server.xlen(keys.dead_letters), "the job to be given up")
    (letter,) = await queue.dead_letters()
    assert (letter.reason, letter.job_id, ran.jobs) == ("retries_exhausted", job.id, [])


async def test_t3_a_truncated_delayed_member_stops_no_promotion(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original stops promoting and retrying."""
    server.zadd(keys.delayed, {b"\x01\x00": 1, b"\x64\x00\x00\x00abc": 2})
    await queue.add("later", delay=0.05)
    ran = Recorder()
    async with working(queue.name, ran, server_url):
        await wait_until(lambda: ran.names == ["later"], "the sound job to run")
    letters = await queue.dead_letters()
    assert [(letter.reason, letter.envelope) for letter in letters] == [
        ("malformed", b"\x01\x00"),
        ("malformed", b"\x64\x00\x00\x00abc"),
    ]


async def test_t4_a_spec_that_cannot_be_read_stops_no_other(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original's scheduler ends for good, on each leader in turn."""
    single_bin = next(case for case in VECTORS["tolerance"]["spec"] if case["case"] == "payload single bin")
    bad_cron = next(case for case in VECTORS["tolerance"]["spec"] if case["case"] == "bad cron expression")
    for key, case in (("bad", single_bin), ("cron", bad_cron)):
        server.hset(keys.spec(key), "spec", bytes.fromhex(case["spec_hex"]))
        server.zadd(keys.repeat, {key: 1})
    await queue.put_schedule("tick", every=0.05, limit=2)
    ran = Recorder()
    async with working(queue.name, ran, server_url):
        await wait_until(lambda: ran.names == ["tick", "tick"], "the good one to fire")
    assert server.zrange(keys.repeat, 0, -1) == [b"cron"]
    (letter,) = await queue.dead_letters()
    assert (letter.reason, letter.envelope.hex()) == ("malformed", single_bin["spec_hex"])


def test_t5_an_interval_below_the_tick_loses_no_fire() -> None:
    """The original drops the fire that is due when it finds another one missed."""
    spec = RepeatSpec("n", EveryPattern(300), b"")
    due, fired = 1000, []
    for late_ms in (0, 150, 299, 300, 0):
        fires, following = due_fires(spec, due, due + late_ms)
        fired += fires
        assert following is not None
        due = following
    assert fired == [1000, 1300, 1600, 1900, 2200]
    assert due_fires(spec, 1000, 2000) == ([1000], 2200)


async def test_t5_the_scheduler_wakes_for_the_next_fire(queue: AsyncChasquiQueue, server: Any, server_url: str) -> None:
    """The original ticks each second: of 200 fires at 300 ms, 1 happened."""
    await queue.put_schedule("tick", every=0.3)
    ran = Recorder()
    async with working(queue.name, ran, server_url):
        await wait_until(lambda: len(ran.jobs) >= 5, "five fires")


@pytest.mark.parametrize("lost", ["stream", "all"])
async def test_t6_a_deleted_stream_is_created_again(
    lost: str, queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original stops reading, and logs nothing."""
    ran = Recorder()
    async with working(queue.name, ran, server_url):
        await wait_until(lambda: server.exists(keys.stream), "the worker to join")
        server.delete(keys.stream) if lost == "stream" else server.flushall()
        await queue.add("x")
        await wait_until(lambda: ran.names == ["x"], "the job to run")


async def test_t7_an_id_stays_taken_and_the_caller_learns_it(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original forgets an id after 99 further adds, and returns the job as if it was added."""
    ran = Recorder()
    async with working(queue.name, ran, server_url, emit_events=False):
        await queue.add("mine", job_id="mine")
        await queue.add_bulk([NewChasquiJob("other", job_id=f"other-{number}") for number in range(150)])
        await wait_until(lambda: len(ran.jobs) == 151 and is_settled(server, keys), "all jobs to run")
        assert not (await queue.add("mine", job_id="mine")).is_new
        assert is_settled(server, keys)
    assert ran.names.count("mine") == 1


def test_t8_doctor_finds_a_queue_that_is_about_to_drop_jobs(keys: ChasquiKeys, server_url: str) -> None:
    """The original drops the oldest beyond about 1,000,000 without a word."""

    class Full(InspectedChasquiQueue):
        counts = ChasquiCounts(950_000, 0, 0, 20_000, 0, is_paused=False)

    with Connection.open(server_url, libraries=()) as connection:
        found = list(chasquimq_growth(Full(keys, connection)))
    assert [finding.severity for finding in found] == [Severity.PROBLEM, Severity.HINT]


async def test_t9_an_unreadable_dead_letter_holds_up_no_replay(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    """The original replays none behind it."""
    server.xadd(keys.dead_letters, {"d": b"\xc1", "source_id": "1-1", "reason": "decode_failed"})
    server.xadd(keys.dead_letters, {"d": pack_envelope(Envelope("good", pack(1), 1)), "reason": "unrecoverable"})
    assert await queue.replay_dead_letters(1) == 1
    assert [job.id for job in await queue.list_jobs()] == ["good"]


async def test_t10_a_dead_letter_has_the_error(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original keeps it in an event only."""

    def fail(job: ChasquiJob) -> None:
        raise RuntimeError("no such file: mail.txt")

    await queue.add("x", attempts=1)
    async with working(queue.name, fail, server_url):
        await wait_until(lambda: server.xlen(keys.dead_letters), "the job to fail for good")
    (letter,) = await queue.dead_letters()
    assert (letter.reason, letter.detail) == ("retries_exhausted", "no such file: mail.txt")


async def test_t11_a_payload_that_cannot_be_read_burns_no_attempts(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original fails all 25 attempts."""
    server.xadd(keys.stream, {"d": pack_envelope(Envelope("inner", b"\xc1", 1)), "n": "inner"})
    ran = Recorder()
    async with working(queue.name, ran, server_url):
        await wait_until(lambda: server.xlen(keys.dead_letters), "the job to be given up")
    (letter,) = await queue.dead_letters()
    assert (letter.reason, letter.job_id, letter.name, ran.jobs) == ("decode_failed", "inner", "inner", [])


async def test_t12_a_long_error_is_cut(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original's events carry it whole."""

    def verbose(job: ChasquiJob) -> None:
        raise UnrecoverableError("x" * 100_000)

    await queue.add("x")
    async with working(queue.name, verbose, server_url):
        await wait_until(lambda: server.xlen(keys.dead_letters), "the job to fail for good")
    (letter,) = await queue.dead_letters()
    assert len(letter.detail or "") == 4096
    assert all(len(fields.get(b"reason", b"")) <= 4096 for _, fields in server.xrange(keys.events))


@pytest.fixture
def fast_clock() -> Iterator[None]:
    """This process's clock, an hour ahead of the server's."""
    travel(timedelta(hours=1))
    yield
    travel(timedelta(0))


@pytest.mark.usefixtures("fast_clock")
async def test_t13_backoff_is_counted_on_the_servers_clock(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """A worker of the original whose clock is fast has retries wait for as long as it is fast."""
    seconds, microseconds = server.time()
    assert now_ms() - (seconds * 1000 + microseconds // 1000) > 3_500_000
    attempts: list[int] = []

    async def flaky(job: ChasquiJob) -> None:
        attempts.append(job.attempt)
        if job.attempt == 0:
            raise RuntimeError("once")

    await queue.add("x", backoff=0.05)
    async with working(queue.name, flaky, server_url):
        await wait_until(lambda: attempts == [0, 1] and is_settled(server, keys), "the retry")


@pytest.mark.skipif(IS_REAL, reason="the server that OQ_TEST_REDIS86 names is not older")
async def test_t14_a_server_older_than_redis_8_6_serves_a_worker(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original reads nothing from it, and raises nothing."""
    with pytest.raises(redis.ResponseError, match="unknown command"):
        server.execute_command("XACKDEL", keys.stream, "default", "IDS", 1, "1-1")
    job = await queue.add("x")
    ran = Recorder()
    async with working(queue.name, ran, server_url):
        await wait_until(lambda: ran.jobs == [job] and is_settled(server, keys), "the job to run")


async def test_t14_a_server_without_functions_is_refused_at_once(tmp_path: Path, queue_name: str) -> None:
    socket = tmp_path / "server.sock"
    process: subprocess.Popen[bytes] = start_server(socket, "--rename-command", "FUNCTION", "")
    try:
        with (
            ChasquiQueue(queue_name, url=f"unix://{socket}") as queue,
            pytest.raises(OrchestrationQueueError, match="refused to load the function library 'chasquimq'"),
        ):
            queue.add("x")
        with pytest.raises(OrchestrationQueueError, match="refused to load"):
            await ChasquiWorker(queue_name, print, url=f"unix://{socket}").run()
    finally:
        process.kill()
        process.wait(60)


async def test_t15_events_cost_a_job_no_exchange_of_its_own(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    """The original waits for two XADDs in each job."""
    count = 2000
    await queue.add_bulk([NewChasquiJob("x")] * count)
    ran = Recorder()
    async with working(queue.name, ran, server_url):
        before = server.info("stats")["total_reads_processed"]
        await wait_until(lambda: is_settled(server, keys), "all jobs to run")
        reads = server.info("stats")["total_reads_processed"] - before
    assert len(ran.jobs) == count
    assert server.xlen(keys.events) >= 2 * count
    assert reads < count, "fewer reads of the server's sockets than jobs, the test's own among them"


async def test_t16_delayed_jobs_without_an_id_can_be_cancelled(queue: AsyncChasquiQueue) -> None:
    """The original cancels those with an id only."""
    job = await queue.add("a", delay=60)
    assert await queue.cancel(job.id)
    assert (await queue.counts()).delayed == 0
