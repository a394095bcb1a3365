"""Queues and jobs from the adder's side, both faces, against a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue, Cancellation, NewJob, Queue
from orchestration_queue.errors import (
    InvalidNameError,
    InvalidOptionError,
    JobFailedError,
    JobNotFoundError,
    PayloadError,
    StateError,
    TransportError,
    UsageError,
)
from orchestration_queue.options import Deduplication, JobOptions, Ordering, Retention, TokenBucket
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until

SOON = timedelta(seconds=60)


async def test_an_added_job_is_stored_as_the_wire_says(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("send", {"to": "zoë"}, JobOptions(attempts=3))
    stored = raw.hgetall(f"glide:{{{queue_name}}}:job:1")
    assert stored.pop("timestamp").isdecimal()
    assert stored.pop("entry") == raw.xrange(f"glide:{{{queue_name}}}:stream")[0][0]
    assert stored == {
        "id": "1",
        "name": "send",
        "data": '{"to":"zoë"}',
        "opts": '{"attempts":3}',
        "attemptsMade": "0",
        "delay": "0",
        "priority": "0",
        "maxAttempts": "3",
        "state": "waiting",
    }
    assert (job.id, job.queue, job.is_new) == ("1", queue_name, True)
    assert [fields for _, fields in raw.xrange(f"glide:{{{queue_name}}}:events")] == [
        {"event": "added", "jobId": "1", "name": "send"}
    ]


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(),
        JobOptions(delay=60),
        JobOptions(priority=5, attempts=2),
        JobOptions(lifo=True, ttl=60),
        JobOptions(job_id="mine", delay=1, priority=1),
    ],
)
async def test_the_record_of_an_added_job_is_what_reading_it_says(
    face: Face, queue_name: str, raw: Any, options: JobOptions
) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work", [1, "two"], options)
        sent, stored = job.record, await job.refresh()
    assert {name: stored.fields.get(name) for name in sent.fields} == sent.fields
    assert sent.data == [1, "two"]


async def test_a_job_is_delayed_until_an_instant(face: Face, queue_name: str, raw: Any) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    async with face.queue(queue_name) as queue:
        job = await queue.add("n", None, JobOptions(delay_until=until))
        record = (await queue.get(job.id)).record
    added = datetime.fromtimestamp(int(record.fields["timestamp"]) / 1000, UTC)
    assert added + timedelta(milliseconds=int(record.fields["delay"])) == until
    assert record.options["delay"] == int(record.fields["delay"])
    assert (record.state, job.record.state) == (JobState.DELAYED, JobState.DELAYED)


async def test_adding_an_id_twice_gives_the_job_that_was_there(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        first = await queue.add("work", {"n": 1}, JobOptions(job_id="mine"))
        again = await queue.add("work", {"n": 2}, JobOptions(job_id="mine"))
        assert (await queue.counts()).waiting == 1
    assert (first.is_new, again.is_new) == (True, False)
    assert again.record.data == {"n": 1}


@pytest.mark.parametrize(
    ("mode", "options"),
    [("simple", JobOptions()), ("throttle", JobOptions()), ("debounce", JobOptions())],
)
async def test_a_skipped_job_gives_the_job_that_stands_for_it(
    face: Face, queue_name: str, raw: Any, mode: Any, options: JobOptions
) -> None:
    options = options.model_copy(update={"deduplication": Deduplication(id="once", mode=mode, ttl=60)})
    async with face.queue(queue_name) as queue:
        first = await queue.add("work", {"n": 1}, options)
        again = await queue.add("work", {"n": 2}, options)
    assert (again.id, again.is_new, again.record.data) == (first.id, False, {"n": 1})


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(job_id="mine"),
        JobOptions(deduplication=Deduplication(id="once")),
        JobOptions(deduplication=Deduplication(id="once", mode="throttle", ttl=60)),
        JobOptions(deduplication=Deduplication(id="once", mode="debounce")),
        JobOptions(job_id="mine", deduplication=Deduplication(id="once")),
    ],
    ids=["job_id", "simple", "throttle", "debounce", "both"],
)
async def test_a_job_that_expired_in_a_paused_queue_is_not_taken_for_the_next(
    face: Face, queue_name: str, raw: Any, server_url: str, options: JobOptions
) -> None:
    async with face.queue(queue_name) as queue:
        await queue.pause()
        first = await queue.add("work", {"n": 1}, options.model_copy(update={"ttl": timedelta(minutes=1)}))
        assert not (await queue.add("work", {"n": 2}, options)).is_new
        raw.hset(queue.keys.job(first.id), "expireAt", 1)  # as if a minute had passed
        last = await queue.add("work", {"n": 3}, options)
        assert (last.is_new, last.record.data) == (True, {"n": 3})
        await queue.resume()
        ran: list[int] = []

        async def work(job: AsyncActiveJob) -> int:
            ran.append(job.data["n"])
            return ran[-1]

        worker = Worker(queue_name, work, url=server_url)
        running = asyncio.create_task(worker.run())
        assert await last.wait(timeout=60) == 3
        worker.stop()
        await running
    assert ran == [3], "and not the one that expired"


async def test_debounce_replaces_a_delayed_job(face: Face, queue_name: str, raw: Any) -> None:
    options = JobOptions(delay=60, deduplication=Deduplication(id="last", mode="debounce"))
    async with face.queue(queue_name) as queue:
        first = await queue.add("work", {"n": 1}, options)
        last = await queue.add("work", {"n": 2}, options)
        assert last.is_new
        assert [job.record.data for job in await queue.jobs("delayed")] == [{"n": 2}]
        with pytest.raises(JobNotFoundError):
            await first.refresh()


async def test_compressed_data_is_stored_compressed_and_read_plain(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name, codec="gzip") as queue:
        job = await queue.add("work", {"text": "x" * 1000})
        assert raw.hget(queue.keys.job(job.id), "data").startswith("gz:")
        assert (await queue.get(job.id)).record.data == {"text": "x" * 1000}


async def test_without_events_nobody_is_told_of_the_adding(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name, emit_events=False) as queue:
        await queue.add("work")
        assert not raw.exists(queue.keys.events)


async def test_bulk_keeps_the_order_over_several_trips_and_meets_what_was_there(
    face: Face, queue_name: str, raw: Any
) -> None:
    async with face.queue(queue_name) as queue:
        there = await queue.add("old", {"n": -1}, JobOptions(job_id="there"))
        once = JobOptions(deduplication=Deduplication(id="once"))
        new = [NewJob("work", {"n": number}) for number in range(2500)]
        new[1200] = NewJob("work", {"n": 1200}, JobOptions(job_id="there"))
        new[7], new[2400] = NewJob("work", {"n": 7}, once), NewJob("work", {"n": 2400}, once)
        jobs = await queue.add_bulk(new)
        waiting = (await queue.counts()).waiting
    assert [place for place, job in enumerate(jobs) if not job.is_new] == [1200, 2400]
    assert (jobs[1200].id, jobs[1200].record.data) == (there.id, {"n": -1})
    assert (jobs[2400].id, jobs[2400].record.data) == (jobs[7].id, {"n": 7})
    assert [job.record.data["n"] for job in jobs if job.is_new] == [n for n in range(2500) if n not in (1200, 2400)]
    assert len({job.id for job in jobs}) == 2499
    assert waiting == 2499


async def test_bulk_of_nothing_sends_nothing(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name, url="redis://localhost:1") as queue:
        assert await queue.add_bulk([]) == []


async def test_a_parent_learns_of_children_of_its_own_and_of_other_queues(
    face: Face, queue_name: str, raw: Any
) -> None:
    async with face.queue(queue_name) as queue, face.queue(queue_name + "-2") as other:
        parent = await queue.add("parent")
        here = await queue.add("child", parent=parent.ref)
        there = await other.add("child", parent=parent.ref)
        skipped = await other.add("child", options=JobOptions(job_id=there.id), parent=parent.ref)
        (many,) = await other.add_bulk([NewJob("child", parent=parent.ref)])
        assert not skipped.is_new
        assert raw.smembers(queue.keys.deps(parent.id)) == {
            queue.keys.member(here.id),
            other.keys.member(there.id),
            other.keys.member(many.id),
        }
        assert raw.hmget(other.keys.job(there.id), "parentId", "parentQueue") == [parent.id, queue_name]
        assert (await other.get(there.id)).record.parent_queue == queue_name


async def test_jobs_are_listed_by_state_in_the_order_workers_take_them(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        first, second = await queue.add("stream"), await queue.add("stream")
        taken = hand.take()
        lifo = [await queue.add("lifo", options=JobOptions(lifo=True)) for _ in range(2)]
        later = await queue.add("later", options=JobOptions(delay=60))
        soon = await queue.add("soon", options=JobOptions(priority=9))

        async def ids(state: str, **page: int) -> list[str]:
            return [job.id for job in await queue.jobs(state, **page)]

        assert await ids("waiting") == [lifo[1].id, lifo[0].id, second.id]
        assert await ids("waiting", limit=1) == [lifo[1].id]
        assert await ids("waiting", offset=1, limit=2) == [lifo[0].id, second.id]
        assert await ids("active") == [first.id]
        assert sorted(await ids("delayed")) == sorted([later.id, soon.id])
        assert await ids("completed") == []
        hand.complete(taken)
        urgent = hand.take()
        assert urgent.id == soon.id
        assert await ids("active") == [soon.id]
        hand.fail(urgent, "no")
        assert (await ids("completed"), await ids("failed"), await ids("active")) == ([first.id], [soon.id], [])
        counts = await queue.counts()
    assert (counts.waiting, counts.active, counts.delayed, counts.completed, counts.failed) == (3, 0, 1, 1, 1)


async def test_a_long_queue_is_listed_in_pieces(face: Face, queue_name: str) -> None:
    def jobs(number: int, **options: Any) -> list[NewJob]:
        return [NewJob("task", options=JobOptions(**options)) for _ in range(number)]

    async with face.queue(queue_name) as queue:
        ready = [job.id for job in await queue.add_bulk(jobs(2300))]
        lifo = [job.id for job in await queue.add_bulk(jobs(1100, lifo=True))]
        later = [job.id for job in await queue.add_bulk(jobs(1001, delay=60))]
        waiting = [*reversed(lifo), *ready]
        for offset, limit in ((0, None), (0, 1), (998, 6), (1050, 101), (1100, 1), (3350, 1000), (5000, None)):
            expected = waiting[offset:][:limit]
            assert [job.id for job in await queue.jobs("waiting", offset=offset, limit=limit)] == expected
        for offset, limit in ((0, None), (999, 2), (1000, 1)):
            found = [job.id for job in await queue.jobs("delayed", offset=offset, limit=limit)]
            assert sorted(found) == sorted(later[offset:][:limit])


async def test_an_unused_queue_is_empty(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        counts = await queue.counts()
        assert (counts.waiting, counts.active, counts.delayed, counts.completed, counts.failed) == (0, 0, 0, 0, 0)
        for state in ("waiting", "active", "delayed", "completed", "failed", "suspended"):
            assert await queue.jobs(state) == []
        assert not await queue.is_paused()
        with pytest.raises(JobNotFoundError, match=f"Queue '{queue_name}' has no job 'nix'"):
            await queue.get("nix")
        assert not await queue.remove("nix")
    assert raw.dbsize() == 0


async def test_wait_returns_what_the_handler_returned(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        waiting = asyncio.ensure_future(job.wait(SOON))
        await wait_until(lambda: _blocked_readers(raw), "the wait to listen")
        hand.complete(hand.take(), {"rows": 3})
        assert await waiting == {"rows": 3}
        assert job.record.state is JobState.COMPLETED
        assert await job.wait(0) == {"rows": 3}


async def test_wait_tells_the_result_of_a_job_that_is_not_kept(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        waiting = asyncio.ensure_future(job.wait(SOON))
        await wait_until(lambda: _blocked_readers(raw), "the wait to listen")
        hand.complete(hand.take(), 7, Retention(count=0))
        assert await waiting == 7
        with pytest.raises(JobNotFoundError):
            await job.wait(SOON)


async def test_wait_goes_through_retries_and_raises_the_last_reason(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work", options=JobOptions(attempts=2))
        waiting = asyncio.ensure_future(job.wait(SOON))
        await wait_until(lambda: _blocked_readers(raw), "the wait to listen")
        hand.fail(hand.take(), "first", max_attempts=2)
        hand.fail(hand.take(), "second", max_attempts=2)
        with pytest.raises(JobFailedError, match=f"Job '1' of queue '{queue_name}' failed: second") as caught:
            await waiting
    assert (caught.value.job_id, caught.value.reason) == ("1", "second")


async def test_a_wait_ends_when_the_job_is_revoked_or_removed(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        for end, reason in (("cancel", "revoked"), ("remove", "removed")):
            job = await queue.add("work")
            waiting = asyncio.ensure_future(job.wait(SOON))
            await wait_until(lambda: _blocked_readers(raw), "the wait to listen")
            await getattr(job, end)()
            with pytest.raises(JobFailedError, match=f"failed: {reason}"):
                await waiting


async def test_a_wait_that_is_over_says_where_the_job_is(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        with pytest.raises(TimeoutError, match=r"^Job '1' of queue .* is still waiting after 0\.05 s; wait longer"):
            await job.wait(0.05)
    await wait_until(lambda: not _blocked_readers(raw), "the server to notice that it is over")


def _blocked_readers(raw: Any) -> bool:
    return any(client["cmd"] == "xread" and "b" in client["flags"] for client in raw.client_list())


async def test_jobs_are_steered(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work", {"n": 1}, JobOptions(delay=60))
        await job.promote()
        assert (await job.refresh()).state is JobState.WAITING
        await job.change_priority(3)
        assert ((await job.refresh()).state, job.record.priority) == (JobState.PRIORITIZED, 3)
        await job.change_delay(timedelta(minutes=1))
        assert ((await job.refresh()).state, job.record.fields["delay"]) == (JobState.DELAYED, "60000")
        await job.change_delay(0)
        await job.change_priority(0)
        await job.update_data({"n": 2})
        assert job.record.data == {"n": 2}
        held = hand.take()
        assert held.record.data == {"n": 2}
        hand.log(held, "half way")
        assert await job.logs() == ["half way"]
        hand.fail(held, "no")
        await job.retry()
        assert ((await job.refresh()).state, job.record.attempts_made, job.record.failed_reason) == (
            JobState.DELAYED,
            0,
            None,
        )
        assert await queue.jobs("failed") == []
        hand.complete(hand.take())
        assert await job.wait(0) is None
        assert await job.cancel() is Cancellation.FLAGGED
        assert await job.remove()
        assert not await job.remove()


async def test_steering_at_the_wrong_time_says_why(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        for attempt in (job.promote(), job.retry()):
            with pytest.raises(StateError, match=r"^Job '1' of queue '.*' .*\.$"):
                await attempt
        hand.take()
        for attempt in (job.change_priority(1), job.change_delay(1)):
            with pytest.raises(StateError, match="has started, or waits for other jobs"):
                await attempt
        await job.remove()
        attempts: list[Coroutine[Any, Any, object]] = [
            job.promote(),
            job.retry(),
            job.change_priority(1),
            job.change_delay(1),
            job.cancel(),
            job.update_data(1),
            job.refresh(),
            job.wait(0),
        ]
        for gone in attempts:
            with pytest.raises(JobNotFoundError):
                await gone
    assert not raw.exists(queue.keys.job("1"))


async def test_a_revoked_job_never_starts(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        assert await job.cancel() is Cancellation.CANCELLED
        assert ((await job.refresh()).state, job.record.failed_reason) == (JobState.FAILED, "revoked")
        assert (await queue.counts()).waiting == 0


async def test_a_queue_is_paused_and_resumed(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        await queue.pause()
        assert await queue.is_paused()
        assert raw.hget(queue.keys.meta, "paused") == "1"
        await queue.resume()
        assert not await queue.is_paused()


async def test_failed_jobs_are_retried_oldest_first(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        jobs = await queue.add_bulk([NewJob("work") for _ in range(3)])
        for _ in jobs:
            hand.fail(hand.take(), "no")
        assert await queue.retry_jobs(1) == 1
        assert [job.id for job in await queue.jobs("delayed")] == [jobs[0].id]
        assert await queue.retry_jobs() == 2
        assert await queue.retry_jobs() == 0


async def test_finished_jobs_are_cleaned_by_age_and_ready_ones_drained(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        jobs = await queue.add_bulk([NewJob("work") for _ in range(4)])
        hand.complete(hand.take())
        hand.complete(hand.take())
        hand.fail(hand.take(), "no")
        assert await queue.clean(timedelta(hours=1)) == []
        assert await queue.clean(timedelta(0), limit=1) == [jobs[0].id]
        assert await queue.clean(timedelta(0), state="failed") == [jobs[2].id]
        await queue.add("later", options=JobOptions(delay=60))
        assert await queue.drain() == 1
        assert await queue.drain(delayed=True) == 1
        counts = await queue.counts()
    assert (counts.waiting, counts.delayed, counts.completed, counts.failed) == (0, 0, 1, 0)


async def test_a_queues_names_are_found_by_prefix(face: Face, queue_name: str, raw: Any) -> None:
    names = [queue_name + suffix for suffix in (" a[1]", "*", "b")]
    for name in names:
        async with face.queue(name) as queue:
            await queue.add("work")
    async with face.queue("other", prefix="x*") as queue:
        await queue.pause()
    raw.set("glide:{not-a-queue}:other", 1, ex=60)
    assert await asyncio.to_thread(Queue.names, url=face.url) == sorted(names)
    assert await asyncio.to_thread(Queue.names, url=face.url, prefix="x*") == ["other"]


BAD_ADDS: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("object as data", {"data": object()}, PayloadError, "cannot be written as JSON"),
    ("NaN as data", {"data": float("nan")}, PayloadError, "cannot be written as JSON"),
    ("large data", {"data": "x" * 1_048_576}, PayloadError, "exceeds maximum size"),
    ("no name", {"name": ""}, UsageError, "`name` must be a non-empty string"),
    ("number as name", {"name": 7}, UsageError, "`name` must be a non-empty string"),
    (
        "word of the wire",
        {"options": JobOptions(job_id="duplicate")},
        InvalidOptionError,
        "is reserved for replies",
    ),
    ("word of the wire 2", {"options": JobOptions(job_id="skipped")}, InvalidOptionError, "is reserved for replies"),
]


@pytest.mark.parametrize(
    ("arguments", "error", "says"), [row[1:] for row in BAD_ADDS], ids=[row[0] for row in BAD_ADDS]
)
async def test_bad_jobs_are_refused_in_one_sentence_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any, arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    good = {"name": "work", **arguments}
    async with face.queue(queue_name) as queue:
        with pytest.raises(error, match=says) as caught:
            await queue.add(**good)
        assert str(caught.value).count(". ") == 0
        assert str(caught.value).endswith(".")
        with pytest.raises(error, match=says):
            await queue.add_bulk([NewJob("fine"), NewJob(**good)])
    assert raw.dbsize() == 0


async def test_bad_calls_are_refused_and_nothing_is_written(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        size = raw.dbsize()
        for attempt, says in (
            (queue.jobs("lost"), "got 'lost'"),
            (queue.jobs("waiting-children"), "keeps no list of waiting-children jobs"),
            (queue.jobs("waiting", limit=-1), "`limit` must be a whole number"),
            (queue.jobs("waiting", offset=-2), "`offset` must be a whole number"),
            (queue.retry_jobs(-1), "`limit` must be a whole number"),
            (queue.retry_jobs(1.5), "`limit` must be a whole number"),  # type: ignore[arg-type]  # what is tested
            (queue.clean(timedelta(seconds=-1)), "`grace` must be a timedelta"),
            (queue.clean("completed"), "`grace` must be a timedelta"),  # type: ignore[arg-type]  # what is tested
            (queue.clean(timedelta(0), -1), "`limit` must be a whole number"),
            (queue.clean(timedelta(0), state="active"), "have not finished"),
            (job.change_priority(-1), "greater than or equal to 0"),
            (job.change_priority(2049), "less than or equal to 2048"),
            (job.change_delay(-1), "greater than or equal to 0 seconds"),
            (job.change_delay(float("nan")), "given nan"),
            (job.update_data(object()), "cannot be written as JSON"),
            (job.wait(-1), "`timeout` must be"),
            (job.wait(float("nan")), "`timeout` must be"),
        ):
            with pytest.raises(UsageError, match=says):
                await attempt
    assert raw.dbsize() == size


@pytest.mark.parametrize("name", ["", "a:b", "a{b", "}", "x" * 257, "new\nline"])
async def test_queue_names_the_wire_cannot_carry_are_refused_before_connecting(face: Face, name: str) -> None:
    with pytest.raises(InvalidNameError, match=r"use letters, digits"):
        face.queue(name, url="redis://localhost:1")


@pytest.mark.parametrize("client", [Queue, AsyncQueue])
def test_a_url_that_cannot_be_read_is_refused_at_once(client: type[Queue | AsyncQueue]) -> None:
    with pytest.raises(UsageError, match="http"):
        client("orders", url="http://somewhere")


async def test_url_and_connection_together_are_refused(face: Face, queue_name: str) -> None:
    with pytest.raises(UsageError, match="Both `url` and `connection` are given"):
        face.queue(queue_name, connection=object())


async def test_a_closed_client_says_so(face: Face, queue_name: str, raw: Any) -> None:
    queue = face.queue(queue_name)
    await queue.add("work")
    await queue.aclose()
    with pytest.raises(UsageError, match="closed; create a new one"):
        await queue.counts()


async def test_a_lent_connection_stays_open(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as owner:
        await owner.add("work")
        async with owner.schedulers as schedulers:
            assert await schedulers.list() == {}
        assert (await owner.counts()).waiting == 1


async def test_an_unreachable_server_is_named(face: Face, queue_name: str, tmp_path: Any) -> None:
    async with face.queue(queue_name, url=f"unix://{tmp_path}/absent.sock") as queue:
        with pytest.raises(TransportError, match=r"Cannot reach the server at unix://.*absent\.sock") as caught:
            await queue.add("work")
    assert not caught.value.maybe_applied


async def test_a_cost_beyond_its_bucket_is_refused_before_sending(face: Face, queue_name: str, raw: Any) -> None:
    with pytest.raises(InvalidOptionError, match="cost exceeds token bucket capacity"):
        JobOptions(cost=9, ordering=Ordering(key="k", token_bucket=TokenBucket(capacity=5, refill_rate=1)))
    assert raw.dbsize() == 0


async def test_many_tasks_share_one_queue_from_its_first_moment(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        jobs = await asyncio.gather(*(queue.add("work", n) for n in range(50)))
    assert len({job.id for job in jobs}) == 50


async def test_a_foreign_payload_is_left_as_it_is(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        raw.hset(queue.keys.job(job.id), "data", "<xml/>")
        record = (await queue.get(job.id)).record
        assert record.fields["data"] == "<xml/>"
        with pytest.raises(PayloadError, match="written with another serializer"):
            _ = record.data


async def test_options_reach_the_hash_as_node_writes_them(face: Face, queue_name: str, raw: Any) -> None:
    options = JobOptions(
        ordering=Ordering(key="k", concurrency=2, token_bucket=TokenBucket(capacity=2.5, refill_rate=0.5)), cost=1.5
    )
    async with face.queue(queue_name) as queue:
        job = await queue.add("work", options=options)
        stored = raw.hgetall(queue.keys.job(job.id))
        group = raw.hgetall(queue.keys.named("group:k"))
    assert json.loads(stored["opts"]) == options.wire()
    assert (stored["groupKey"], stored["orderingSeq"], stored["cost"]) == ("k", "1", "1500")
    assert (group["tbCapacity"], group["tbRefillRate"], group["maxConcurrency"]) == ("2500", "500", "2")


def test_a_sync_queue_is_shared_by_threads(server_url: str, queue_name: str, raw: Any) -> None:
    with Queue(queue_name, url=server_url) as queue:
        threads = [threading.Thread(target=queue.add, args=("work", n)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert queue.counts().waiting == 20


def test_a_parent_reference_says_where_it_waits(queue_name: str, server_url: str, raw: Any) -> None:
    with Queue(queue_name, url=server_url) as queue:
        assert queue.add("work").ref == ParentRef(queue.keys, "1")
