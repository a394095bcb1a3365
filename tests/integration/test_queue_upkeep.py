"""Operating a queue: its counts, limits, workers and settings, and cleaning it; sync and async, on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue, Cancellation, NewJob, WorkerInfo
from orchestration_queue.errors import JobFailedError, JobNotFoundError, PayloadError, UsageError
from orchestration_queue.options import JobOptions, Ordering, RateLimit, Retention, WorkerOptions
from orchestration_queue.states import JobState
from orchestration_queue.testing import TimeMachine
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until

MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@contextmanager
def calls(raw: Any, function: str) -> Iterator[list[str]]:
    """What of one function was called meanwhile: filled in when the context is left."""
    heard: list[str] = []
    with raw.monitor() as monitor:
        yield heard
        raw.echo("end")
        while (command := monitor.next_command()["command"]) != "ECHO end":
            if command.startswith(f"FCALL {function} "):
                heard.append(command)


def store_finished(raw: Any, queue: AsyncQueue, state: str, count: int) -> list[str]:
    """Jobs that finished one millisecond after the other, as any client would have left them."""
    ids = [f"{state}-{number}" for number in range(count)]
    pipeline = raw.pipeline(transaction=False)
    for at_ms, job_id in enumerate(ids, 1):
        pipeline.hset(queue.keys.job(job_id), mapping={"id": job_id, "name": "work", "data": "{}", "state": state})
        pipeline.zadd(queue.keys.named(state), {job_id: at_ms})
    pipeline.execute()
    return ids


# -- Numbers


async def test_counts_tell_every_job_that_a_list_keeps(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        assert await queue.count() == 0
        await queue.add_bulk([NewJob("work") for _ in range(3)])
        await queue.add("work", options=JobOptions(lifo=True))
        await queue.add("work", options=JobOptions(delay=60))
        hand.take()
        raw.zadd(queue.keys.suspended, {"s": 1})
        assert await queue.count() == 4
        counts = await queue.counts()
    assert (counts.waiting, counts.active, counts.delayed, counts.suspended) == (3, 1, 1, 1)


async def test_metrics_are_minutes_and_sum_to_the_jobs(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add_bulk([NewJob("work") for _ in range(5)])
        for _ in range(3):
            hand.complete(hand.take())
        for _ in range(2):
            hand.fail(hand.take(), "no")
        raw.zrem(queue.keys.completed, "1")
        completed, failed = await queue.metrics(), await queue.metrics("failed")
        assert (await queue.metrics(end=datetime.now(UTC) - timedelta(hours=2))).minutes == ()
    assert (completed.kind, completed.count, completed.kept) == (JobState.COMPLETED, 3, 2)
    assert (failed.kind, failed.count, failed.kept) == (JobState.FAILED, 2, 2)
    assert all(minute.at.timestamp() % 60 == 0 for minute in (*completed.minutes, *failed.minutes))


async def test_metrics_read_the_minutes_asked_for_and_no_others(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        for minute in range(-1, 4):
            at_ms = int((NOON + minute * MINUTE).timestamp() * 1000)
            raw.hset(queue.keys.metrics_completed, mapping={f"m:{at_ms}:c": 4, f"m:{at_ms}:d": 10 * minute})
        raw.hset(queue.keys.metrics_completed, "m:junk", "x")
        read = await queue.metrics("completed", NOON + timedelta(seconds=59), NOON + 2 * MINUTE)
        month = await queue.metrics("completed", NOON - timedelta(days=30), NOON + MINUTE)
    assert [(minute.at, minute.count) for minute in read.minutes] == [(NOON + n * MINUTE, 4) for n in range(3)]
    assert [minute.mean_duration / timedelta(milliseconds=1) for minute in read.minutes] == [0, 2, 5]
    assert [minute.at for minute in month.minutes] == [NOON - MINUTE, NOON, NOON + MINUTE]


async def test_workers_are_listed_oldest_first_and_junk_is_left_out(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        assert await queue.workers() == []
        told = {
            "b": {"addr": "two", "pid": 2, "startedAt": 2000, "activeJobs": 3, "more": True},
            "a": {"addr": "one", "pid": 1, "startedAt": 1000, "activeJobs": 0},
            "no-address": {"pid": 1, "startedAt": 1},
            "no-number": {"addr": "x", "pid": "?", "startedAt": 1},
            "no-dict": [1],
        }
        for consumer, description in told.items():
            raw.set(queue.keys.worker(consumer), json.dumps(description), px=60_000)
        raw.set(queue.keys.worker("no-json"), "{", px=60_000)
        raw.set(f"glide:{{{queue_name}x}}:w:other", json.dumps(told["a"]), px=60_000)
        assert await queue.workers() == [
            WorkerInfo("a", "one", 1, datetime.fromtimestamp(1, UTC), 0),
            WorkerInfo("b", "two", 2, datetime.fromtimestamp(2, UTC), 3),
        ]


async def test_a_real_worker_is_listed_while_it_lives(face: Face, queue_name: str, raw: Any) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    async with face.queue(queue_name) as queue:
        worker = Worker(queue_name, work, url=face.url)
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: raw.exists(queue.keys.worker(worker.id)), "the worker to register")
        (listed,) = await queue.workers()
        worker.stop()
        await running
        assert await queue.workers() == []
    assert (listed.id, listed.active_jobs) == (worker.id, 0)


# -- Bounds, as the wire stores them


async def test_the_queues_bounds_are_set_read_and_dropped(face: Face, queue_name: str, raw: Any) -> None:
    limit = RateLimit(max=7, duration=timedelta(seconds=1.5))
    async with face.queue(queue_name) as queue:
        assert (await queue.global_concurrency(), await queue.global_rate_limit()) == (None, None)
        await queue.set_global_concurrency(3)
        await queue.set_global_rate_limit(limit)
        assert (await queue.global_concurrency(), await queue.global_rate_limit()) == (3, limit)
        assert raw.hgetall(queue.keys.meta) == {
            "globalConcurrency": "3",
            "rateLimitMax": "7",
            "rateLimitDuration": "1500",
        }
        await queue.set_global_concurrency(None)
        await queue.set_global_rate_limit(None)
        assert raw.hgetall(queue.keys.meta) == {}
        raw.hset(queue.keys.meta, mapping={"globalConcurrency": "0", "rateLimitMax": "x", "rateLimitDuration": "5"})
        assert (await queue.global_concurrency(), await queue.global_rate_limit()) == (None, None)


async def test_an_ordering_key_is_held_back_and_the_later_end_stays(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        until = await queue.rate_limit_group("k", 60)
        assert await queue.rate_limit_group("k", timedelta(seconds=1)) == until
        assert raw.zscore(queue.keys.ratelimited, "k") == until.timestamp() * 1000
    assert timedelta(seconds=50) < until - datetime.now(UTC) <= timedelta(seconds=60)


# -- Jobs by their ids


async def test_jobs_are_steered_by_id(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        hand.log(hand.take(), "half way")
        assert await queue.logs(job.id) == ["half way"]
        assert await queue.cancel(job.id) is Cancellation.FLAGGED
        other = await queue.add("work")
        assert await queue.cancel(other.id) is Cancellation.CANCELLED
        with pytest.raises(JobNotFoundError):
            await queue.cancel("nix")
        raw.xadd(f"{queue.keys.base}:jstream:{job.id}", {"type": "token", "content": "Hi"})
        (entry,) = await queue.read_stream(job.id)
        assert (entry.type, entry.content) == ("token", "Hi")
        assert await queue.read_stream(job.id, after=entry.id) == []


async def test_a_suspended_job_is_listed_described_and_signalled(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        raw.xtrim(queue.keys.stream, maxlen=0)
        raw.hset(queue.keys.job(job.id), mapping={"state": "suspended", "suspendReason": "ask", "suspendedAt": 1000})
        raw.zadd(queue.keys.suspended, {job.id: 9999999999999})
        assert [suspended.id for suspended in await queue.suspended_jobs()] == [job.id]
        info = await queue.suspend_info(job.id)
        assert info is not None
        assert (info.reason, info.suspended_at, info.timeout) == ("ask", datetime.fromtimestamp(1, UTC), None)
        assert await queue.signal(job.id, "approved", {"by": "zoë"})
        assert (await job.refresh()).state is JobState.WAITING
        assert json.loads(raw.lindex(queue.keys.signals(job.id), 0))["data"] == '{"by":"zoë"}'
        assert not await queue.signal(job.id, "approved")
        assert not await queue.signal("nix", "approved")
        assert await queue.suspend_info(job.id) is None


# -- Adding and waiting


async def test_add_and_wait_returns_the_result_even_of_a_job_that_is_not_kept(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        for retention in (None, Retention(count=0)):
            waiting = asyncio.ensure_future(queue.add_and_wait("work", {"n": 1}, timeout=60))
            held = await asyncio.to_thread(hand.take)
            assert held.record.data == {"n": 1}
            hand.complete(held, {"rows": 3}, retention)
            assert await waiting == {"rows": 3}
        waiting = asyncio.ensure_future(queue.add_and_wait("work", timeout=60))
        hand.fail(await asyncio.to_thread(hand.take), "no")
        with pytest.raises(JobFailedError, match="failed: no"):
            await waiting


async def test_add_and_wait_waits_for_the_job_that_was_there(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add("work", {"n": 1}, JobOptions(job_id="mine"))
        hand.complete(hand.take(), "first")
        assert await queue.add_and_wait("work", {"n": 2}, JobOptions(job_id="mine"), timeout=60) == "first"


async def test_add_and_wait_ends_in_time_and_the_job_goes_on(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        with pytest.raises(TimeoutError, match="is still waiting after"):
            await queue.add_and_wait("work", timeout=0.05)
        assert await queue.count() == 1
        with pytest.raises(UsageError, match="`timeout` must be"):
            await queue.add_and_wait("work", timeout=-1)
        assert await queue.count() == 1


# -- Tidying up, in portions


async def test_failed_jobs_are_retried_100_to_a_call(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        ids = store_finished(raw, queue, "failed", 2300)
        raw.delete(queue.keys.job(ids[0]))  # a job that retention removed is no job to retry
        with calls(raw, "glidemq_retryJobs") as made:
            assert await queue.retry_jobs(1200) == 1200
        assert len(made) == 12
        with calls(raw, "glidemq_retryJobs") as made:
            assert await queue.retry_jobs() == 1099
        assert len(made) == 11
        assert raw.zcard(queue.keys.failed) == 0
        assert raw.zcard(queue.keys.scheduled) == 2299
        assert await queue.retry_jobs() == 0


async def test_finished_jobs_are_cleaned_100_to_a_call_oldest_first(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        ids = store_finished(raw, queue, "completed", 2300)
        with calls(raw, "oq1_clean") as made:
            assert await queue.clean(timedelta(0), 2100) == ids[:2100]
        assert len(made) == 21
        assert await queue.clean(timedelta(0), 5000) == ids[2100:]
        assert raw.keys(queue.keys.job("*")) == []


async def test_draining_keeps_active_jobs_and_removes_all_that_is_ready(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add_bulk([NewJob("work") for _ in range(2100)])
        held = hand.take()
        await queue.add("work", options=JobOptions(lifo=True))
        await queue.add("work", options=JobOptions(delay=60))
        with calls(raw, "oq1_drain") as made:
            assert await queue.drain() == 2100
        assert len(made) == 21
        assert await queue.drain() == 0
        assert await queue.drain(delayed=True) == 1
        assert await queue.count() == 1
        hand.complete(held)
        assert [job.id for job in await queue.jobs("completed")] == [held.id]


# -- Bad input


async def test_bad_input_is_refused_in_one_sentence_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any
) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001  what is tested
    wrong: Any = "3"
    number: Any = 7
    async with face.queue(queue_name) as queue:
        attempts: list[tuple[Coroutine[Any, Any, object], str]] = [
            (queue.set_global_concurrency(0), "`limit` must be a whole number >= 1, or None for no limit; got 0"),
            (queue.set_global_concurrency(True), "got True"),
            (queue.set_global_concurrency(wrong), "got '3'"),
            (queue.set_global_rate_limit(wrong), "`limit` must be a RateLimit"),
            (queue.rate_limit_group("", 1), "`key` must be a non-empty string"),
            (queue.rate_limit_group("k", 0), "RateLimit.duration"),
            (queue.rate_limit_group("k", -1), "`duration` must be"),
            (queue.rate_limit_group("k", float("nan")), "`duration` must be"),
            (queue.signal("1", ""), "Signal name must be a non-empty string, got ''"),
            (queue.signal("1", number), "got 7"),
            (queue.signal("1", "s", object()), "data of signal 's' cannot be written as JSON"),
            (queue.metrics("active"), "Jobs that are active have not finished"),
            (queue.metrics("lost"), "got 'lost'"),
            (queue.metrics(start=naive), "A time must be a datetime with a time zone, got"),
            (queue.metrics(start=NOON, end=NOON - MINUTE), "start must precede their end"),
            (queue.metrics(start=NOON - timedelta(days=32), end=NOON), "by at most 31 days"),
            (queue.read_stream("1", after="last"), "got 'last'"),
            (queue.read_stream("1", count=0), ">= 1, got 0"),
            (queue.suspended_jobs(offset=-1), "`offset` must be a whole number"),
            (queue.add_and_wait("", 1), "`name` must be a non-empty string"),
            (queue.add_and_wait("work", float("inf")), "cannot be written as JSON"),
        ]
        for attempt, says in attempts:
            with pytest.raises((UsageError, PayloadError), match=says) as caught:
                await attempt
            assert str(caught.value).endswith(".")
    assert raw.dbsize() == 0


async def test_parked_jobs_of_a_held_key_start_when_the_hold_is_over(face: Face, queue_name: str, raw: Any) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        return job.data

    limited = JobOptions(ordering=Ordering(key="k", rate_limit=RateLimit(max=1, duration=timedelta(hours=1))))
    quick = WorkerOptions(promotion_interval=timedelta(milliseconds=50))
    with TimeMachine() as clock:
        async with face.queue(queue_name) as queue:
            worker = Worker(queue_name, work, url=face.url, options=quick)
            running = asyncio.ensure_future(worker.run())
            first, second = await queue.add_bulk([NewJob("work", n, limited) for n in range(2)])
            await first.wait(60)
            await wait_until(lambda: raw.zcard(queue.keys.ratelimited) == 1, "the second to wait for the limit")
            until = await queue.rate_limit_group("k", timedelta(hours=3))
            meanwhile = await queue.add("work", options=JobOptions(delay=timedelta(hours=2)))
            clock.travel(timedelta(hours=2))
            await meanwhile.wait(60)  # so the worker has looked for what is due, and the limit's hour is over
            assert (await second.refresh()).started_at is None
            clock.travel_to(until)
            await second.wait(60)
            worker.stop()
            await running
    assert second.record.started_at is not None
    assert second.record.started_at >= until
