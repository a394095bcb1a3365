"""Whatever a record holds or a handler raises fails that job alone: its worker, other jobs and the sweep continue."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.options import Backoff, JobOptions, Ordering, WorkerOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.states import FailureKind
from orchestration_queue.worker import AsyncActiveJob, WorkerEvent, WorkerEventType
from orchestration_queue.worker.machine import Exchange
from orchestration_queue.worker.queue_io import QueueIO
from tests.by_hand import HandWorker
from tests.waiting import wait_until
from tests.workers import working

GARBAGE = ("zz", "inf", "-inf", "nan", "1e999", "0x10", "-1", "", "9" * 40, "1.5", "[]", "{", "\x00", "é", "[" * 20_000)
DAMAGED = {
    "deep options": ("opts", '{"a":' * 5_000 + "1" + "}" * 5_000),
    "no options": ("opts", "none"),
    "a list of options": ("opts", "[1]"),
    "odd stalls": ("stalledCount", "zz"),
    "endless stalls": ("stalledCount", "inf"),
    "odd attempts": ("attemptsMade", "zz"),
    "a time beyond all calendars": ("timestamp", "9" * 15),
    "an odd priority": ("priority", "high"),
}


FIELDS = [
    *("opts", "data", "name", "state", "priority", "timestamp", "attemptsMade", "stalledCount", "lastActive"),
    *("processedOn", "groupKey", "orderingSeq", "orderingKey", "cost", "expireAt", "lifo", "takenFrom"),
    *("depsCompleted", "fallbackIndex", "parentId", "progress", "budgetKey", "maxAttempts", "delay", "schedulerName"),
]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


WORDLESS = [UnspeakableError(), ExitingError(), ValueError("\ud800"), SystemExit(UnspeakableError())]
WIRE_REASONS = ["revoked", "job stalled more than maxStalledCount", "expired", "Job timeout exceeded"]


def record_of(raw: redis.Redis, key: str) -> JobRecord:
    fields: Any = raw.hgetall(key)
    return JobRecord(key.rpartition(":")[2], fields)


def raise_(error: BaseException) -> None:
    raise error


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.mark.parametrize(("field", "value"), DAMAGED.values(), ids=DAMAGED.keys())
async def test_a_damaged_record_fails_as_malformed(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, field: str, value: str
) -> None:
    damaged = await queue.add("work", 1, JobOptions(attempts=3))
    raw.hset(queue.keys.job(damaged.id), field, value)
    async with working(queue, lambda job: job.data, server_url):
        fine = await queue.add("work", 2)
        assert await fine.wait(timeout=30) == 2
        await wait_until(lambda: raw.hget(queue.keys.job(damaged.id), "state") == "failed", "the damaged job to fail")
    record = record_of(raw, queue.keys.job(damaged.id))
    assert record.failure_kind is FailureKind.MALFORMED
    assert f"{field!r}" in str(record.failed_reason)


@pytest.mark.parametrize("error", WORDLESS)
async def test_an_error_without_words_fails_its_job_alone(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, error: BaseException
) -> None:
    async with working(queue, lambda job: raise_(error) if job.data else "done", server_url):
        failing, fine = await queue.add("work", 1), await queue.add("work", 0)
        assert await fine.wait(timeout=30) == "done"
        await wait_until(lambda: raw.hget(queue.keys.job(failing.id), "state") == "failed", "the job to fail")
    record = record_of(raw, queue.keys.job(failing.id))
    assert record.failure_kind in {type(error).__qualname__, "RuntimeError", f"{__name__}.{type(error).__qualname__}"}
    assert record.failed_reason


async def test_a_failed_attempt_is_logged_and_stored_with_its_traceback(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def look_up(job: Any) -> str:
        return {"present": "x" * 10}["missing" * 9_000 if job.attempt > 1 else "missing"]

    async with working(queue, look_up, server_url):
        job = await queue.add("work", 1, JobOptions(attempts=2, backoff={"type": "fixed", "delay": 0}))
        await wait_until(lambda: raw.hget(queue.keys.job(job.id), "state") == "failed", "the job to fail")
    traceback = str(record_of(raw, queue.keys.job(job.id)).traceback)
    assert len(traceback.encode()) <= 8_192
    logged = [record.getMessage() for record in caplog.records if "failed: KeyError" in record.getMessage()]
    assert [text.partition(" of ")[0] for text in logged] == ["Attempt 1", "Attempt 2"]
    assert 'in look_up\n      return {"present"' in logged[0]
    assert "runner.py" not in logged[0]


@pytest.mark.parametrize("text", WIRE_REASONS)
async def test_a_reason_that_reads_like_the_wires_own_is_an_error_all_the_same(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, text: str
) -> None:
    async with working(queue, lambda job: raise_(TimeoutError(text)), server_url):
        job = await queue.add("work", 1)
        await wait_until(lambda: raw.hget(queue.keys.job(job.id), "state") == "failed", "the job to fail")
    record = record_of(raw, queue.keys.job(job.id))
    assert (record.failed_reason, record.failure_kind) == (text, "TimeoutError")


async def test_a_cancelled_and_a_late_job_say_so(queue: AsyncQueue, raw: redis.Redis, server_url: str) -> None:
    async def endless(job: AsyncActiveJob) -> None:
        await asyncio.Event().wait()

    async with working(queue, endless, server_url) as worker:
        late = await queue.add("work", 1, JobOptions(timeout=timedelta(milliseconds=50)))
        job = await queue.add("work", 1)
        await wait_until(lambda: worker.running and worker.cancel(job.id), "the job to run")
        for each in (late, job):
            key = queue.keys.job(each.id)
            await wait_until(lambda key=key: raw.hget(key, "state") == "failed", "it to fail")  # type: ignore[misc]  # key is text
    kinds = [record_of(raw, queue.keys.job(each.id)).failure_kind for each in (late, job)]
    assert kinds == [FailureKind.TIMEOUT, FailureKind.CANCELLED]


async def test_a_job_run_again_has_no_failure_any_more(queue: AsyncQueue, raw: redis.Redis, server_url: str) -> None:
    async with working(queue, lambda job: raise_(ValueError("no")), server_url):
        job = await queue.add("work", 1)
        await wait_until(lambda: raw.hget(queue.keys.job(job.id), "state") == "failed", "the job to fail")
    await job.retry()
    assert raw.hmget(queue.keys.job(job.id), "failureKind", "traceback") == [None, None]


async def test_a_later_failure_elsewhere_does_not_show_an_earlier_ones_kind_and_traceback(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, hand: HandWorker
) -> None:
    key = queue.keys.job("1")

    async def endless(job: AsyncActiveJob) -> None:
        await asyncio.Event().wait()

    async with working(queue, endless, server_url):
        await queue.add(
            "work", 1, JobOptions(attempts=2, backoff=Backoff(delay=3600), timeout=timedelta(milliseconds=20))
        )
        await wait_until(lambda: raw.hget(key, "state") == "delayed", "the first attempt to fail")
    noted = await queue.get("1")
    assert (noted.failure_kind, bool(noted.traceback)) == (FailureKind.TIMEOUT, True)
    await noted.promote()
    # A worker that settles by glide-mq's own function, which knows neither kind nor traceback.
    hand.fail(hand.take(), "boom", max_attempts=2)
    later = await queue.get("1")
    assert (later.failed_reason, later.failure_kind, later.traceback) == ("boom", FailureKind.ERROR, None)


@pytest.mark.parametrize("field", ["stalledCount", "lastActive", "priority", "expireAt", "orderingSeq", "cost", "opts"])
async def test_the_sweep_goes_on_past_a_damaged_record(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, field: str
) -> None:
    keys: QueueKeys = queue.keys
    options = WorkerOptions(stalled_interval=timedelta(milliseconds=100), lease=timedelta(seconds=1), max_stalled=0)
    async with await AsyncConnection.open(server_url) as connection:
        io = QueueIO(keys, "lost", connection, connection, options)
        await io.join()
        ids = [(await queue.add("work", 1)).id for _ in GARBAGE]
        last = await queue.add("work", 1)
        started = (await io.exchange(Exchange(want=len(ids) + 1))).started
        assert len(started) == len(ids) + 1
        for job_id, value in zip(ids, GARBAGE, strict=True):
            raw.hset(keys.job(job_id), mapping={"lastActive": 1, field: value})
        raw.hset(keys.job(last.id), "lastActive", 1)

        def is_failed() -> bool:
            return raw.hget(keys.job(last.id), "state") == "failed"

        for _ in range(100):  # the stream hands out idle entries only after a while
            if is_failed():
                break
            await io.reclaim()
            await asyncio.sleep(0.02)
        assert is_failed()
    record = record_of(raw, keys.job(last.id))
    assert record.failure_kind is FailureKind.STALLED


@pytest.mark.parametrize("seed", range(3))
async def test_random_bytes_in_any_field_of_any_job_stop_no_worker(
    queue: AsyncQueue, raw: redis.Redis, server_url: str, seed: int
) -> None:
    chance = random.Random(seed)
    errors: list[str] = []

    async def work(job: AsyncActiveJob) -> Any:
        if job.attempt < 2 and isinstance(job.data, int) and job.data % 3 == 0:
            raise ValueError("again")
        return 1

    shapes = (
        JobOptions(),
        JobOptions(priority=5),
        JobOptions(lifo=True),
        JobOptions(attempts=3, backoff={"type": "fixed", "delay": 0.01}),
        JobOptions(ordering=Ordering(key="one", concurrency=2)),
        JobOptions(delay=0.02),
        JobOptions(ttl=60),
    )
    ids = [(await queue.add("work", number, shapes[number % len(shapes)])).id for number in range(140)]
    for job_id in ids:
        field = chance.choice(FIELDS)
        value = chance.choice(GARBAGE) if chance.random() < 0.7 else chance.randbytes(chance.randrange(40))
        raw.hset(queue.keys.job(job_id), field, value)

    def note(event: WorkerEvent) -> None:
        if event.type is WorkerEventType.ERROR:
            errors.append(str(event.reason))

    async with working(queue, work, server_url, lease=timedelta(seconds=2)) as worker:
        worker.subscribe(note)
        for index in range(5):
            fine = await queue.add("work", "fine")
            assert await fine.wait(timeout=30) == 1, index
        assert worker.is_ready
    assert errors == []
    raw.flushall()  # damaged names of groups and parents leave keys that no queue knows


def test_what_a_lease_is_made_of_reads_as_the_server_reads_it() -> None:
    for value in GARBAGE:
        record = JobRecord(
            "1", {"processedOn": "5", "stalledCount": value, "opts": json.dumps({"lockDuration": value})}
        )
        lease = Lease(record, "")
        assert isinstance(lease.stalled_count, int)
        assert lease.lock_ms is None
