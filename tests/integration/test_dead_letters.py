"""Dead letters of any client: found, replayed and dropped; both faces, against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue, DeadLetter, NewJob
from orchestration_queue.errors import DeadLetterNotFoundError, InvalidNameError, InvalidOptionError, UsageError
from orchestration_queue.options import Backoff, Deduplication, JobOptions, Ordering, WorkerOptions
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.codec import find_codec
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until


def envelope(queue: str, job_id: str, data: Any = None, **more: Any) -> dict[str, Any]:
    """A letter as Node's workers write it."""
    told = {"originalQueue": queue, "originalJobId": job_id, "data": data, "failedReason": "no", "attemptsMade": 2}
    return {**told, **more}


@asynccontextmanager
async def working(queue: AsyncQueue, url: str, handler: Any, **options: Any) -> AsyncIterator[None]:
    """A worker that leaves dead letters in the queue ``<name>-dead``."""
    quick = timedelta(milliseconds=50)
    options = {"dead_letter_queue": f"{queue.name}-dead", "promotion_interval": quick} | options
    worker = Worker(queue.name, handler, url=url, options=WorkerOptions(**options))
    running = asyncio.ensure_future(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)


async def test_a_job_that_failed_for_good_is_found_and_runs_again_once_its_cause_is_gone(
    face: Face, queue_name: str, raw: Any
) -> None:
    is_broken = True

    async def work(job: AsyncActiveJob) -> Any:
        if is_broken:
            raise ValueError("out of paper")
        return job.data

    async with face.queue(queue_name) as queue, working(queue, face.url, work):
        failed = await queue.add("print", {"page": 7}, JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=0)))
        await wait_until(lambda: raw.exists(f"glide:{{{queue_name}-dead}}:stream"), "a letter")
        (letter,) = await queue.dead_letters.list()
        assert (letter.original_queue, letter.original_job_id, letter.name) == (queue_name, failed.id, "print")
        assert (letter.data, letter.attempts_made) == ({"page": 7}, 1)
        assert "out of paper" in letter.failed_reason
        assert letter.added_at is not None
        assert abs(datetime.now(UTC) - letter.added_at) < timedelta(minutes=1)
        read = await queue.dead_letters.find(letter.id)
        assert read is not None
        assert (read.attempts, read.failure_kind) == (2, "ValueError")
        assert 'raise ValueError("out of paper")' in (read.traceback or "")
        is_broken = False
        again = await queue.dead_letters.replay(letter.id)
        assert (again.is_new, again.id != failed.id) == (True, True)
        assert await again.wait(60) == {"page": 7}
        assert (await queue.get(again.id)).record.max_attempts == 2
        assert await queue.dead_letters.list() == []
        assert await queue.dead_letters.find(letter.id) is None


async def test_letters_wait_for_a_queue_of_letters_that_is_broken(
    face: Face, queue_name: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    dead = f"glide:{{{queue_name}-dead}}:stream"
    raw.set(dead, "nonsense")

    async def work(job: AsyncActiveJob) -> None:
        raise ValueError("out of paper")

    soon = timedelta(milliseconds=200)
    async with face.queue(queue_name) as queue, working(queue, face.url, work, stalled_interval=soon):
        await queue.add_bulk([NewJob("print", page) for page in range(3)])
        await wait_until(lambda: raw.zcard(queue.keys.failed) == 3, "the jobs to fail all the same")
        await wait_until(lambda: "WRONGTYPE" in caplog.text, "the error to be logged")
        assert raw.zcard(queue.keys.outbox) == 3
        raw.delete(dead)
        await wait_until(lambda: not raw.exists(queue.keys.outbox), "the letters to be written")
        assert sorted(letter.data for letter in await queue.dead_letters.list()) == [0, 1, 2]


async def test_letters_of_a_shared_queue_are_told_apart_by_their_owner(face: Face, queue_name: str, raw: Any) -> None:
    dead, other = f"{queue_name}-dead", f"{queue_name}-2"
    async with (
        face.queue(dead) as letters,
        face.queue(queue_name, dead_letter_queue=dead) as queue,
        face.queue(other, dead_letter_queue=dead) as stranger,
    ):
        owners = [queue_name, other, queue_name, queue_name]
        jobs = await letters.add_bulk([NewJob("work", envelope(owner, f"j{n}", n)) for n, owner in enumerate(owners)])
        await letters.add("no-letter", {"to": "zoë"})
        await letters.add("no-dict", [1])
        foreign = await letters.add("foreign")
        raw.hset(letters.keys.job(foreign.id), "data", "<xml/>")
        mine = await queue.dead_letters.list()
        assert [letter.original_job_id for letter in mine] == ["j0", "j2", "j3"]
        assert mine[1] == await queue.dead_letters.get(jobs[2].id)
        assert mine[1] == DeadLetter(jobs[2].id, queue_name, "j2", "work", 2, "no", 2, jobs[2].record.added_at)
        assert [letter.original_job_id for letter in await queue.dead_letters.list(offset=1, limit=1)] == ["j2"]
        assert [letter.original_job_id for letter in await queue.dead_letters.list(offset=1)] == [
            "j2",
            "j3",
        ]
        # Those of others are none, for whatever one wants to do with them.
        assert await queue.dead_letters.find(jobs[1].id) is None
        assert not await queue.dead_letters.remove(jobs[1].id)
        with pytest.raises(DeadLetterNotFoundError):
            await queue.dead_letters.replay(jobs[1].id)
        assert await queue.dead_letters.remove(jobs[0].id)
        assert not await queue.dead_letters.remove(jobs[0].id)
        assert await queue.dead_letters.purge() == 2
        assert await queue.dead_letters.list() == []
        assert [letter.original_job_id for letter in await stranger.dead_letters.list()] == ["j1"]
        assert len(await letters.jobs("waiting")) == 4


async def test_the_queue_of_letters_is_the_one_named_by_anybody(face: Face, queue_name: str, raw: Any) -> None:
    dead = f"{queue_name}-dead"
    async with face.queue(queue_name) as queue, face.queue(queue_name, dead_letter_queue=dead) as naming:
        assert await queue.dead_letters.list() == []
        assert await queue.dead_letters.find("1") is None
        assert not await queue.dead_letters.remove("1")
        assert (await queue.dead_letters.replay_all(), await queue.dead_letters.purge()) == (0, 0)
        with pytest.raises(DeadLetterNotFoundError):
            await queue.dead_letters.replay("1")
        assert raw.dbsize() == 0
        assert await naming.dead_letters.list() == []
        assert raw.hgetall(queue.keys.meta) == {"deadLetterQueueName": dead}
        async with face.queue(dead) as letters:
            await letters.add("work", envelope(queue_name, "1"))
        assert [letter.name for letter in await queue.dead_letters.list()] == ["work"]


async def test_a_replay_takes_data_and_options_of_the_original_but_not_what_was_about_it_alone(
    face: Face, queue_name: str, raw: Any
) -> None:
    dead = f"{queue_name}-dead"
    options = JobOptions(
        job_id="mine",
        attempts=3,
        delay=1,
        priority=4,
        ttl=60,
        deduplication=Deduplication(id="once"),
        ordering=Ordering(key="k", concurrency=2),
    )
    async with (
        face.queue(dead) as letters,
        face.queue(queue_name, dead_letter_queue=dead, codec="gzip") as queue,
    ):
        await queue.add("work", {"page": 7}, options)
        stored = json.loads(raw.hget(queue.keys.job("mine"), "opts"))
        foreign = {**stored, "fallbacks": [{"model": "small"}], "parent": {"queue": "x", "id": "1"}}
        raw.hset(queue.keys.job("mine"), "opts", json.dumps(foreign))
        letter = await letters.add("work", envelope(queue_name, "mine", "of the letter"))
        again = await queue.dead_letters.replay(letter.id)
        sent = again.record
        record = (await queue.get(again.id)).record
        assert {name: record.fields.get(name) for name in sent.fields} == sent.fields
        assert record.data == {"page": 7}
        assert record.fields["data"] == raw.hget(queue.keys.job("mine"), "data")
        assert record.options == {
            name: value for name, value in foreign.items() if name not in ("jobId", "delay", "deduplication", "parent")
        }
        assert (record.state, record.priority, record.max_attempts) == (JobState.PRIORITIZED, 4, 3)
        assert (record.group, record.fields["orderingSeq"], record.parent_id) == ("k", "2", None)
        assert int(record.fields["expireAt"]) - int(record.fields["timestamp"]) == 60_000


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        ({"page": 7, "empty": []}, {"page": 7, "empty": []}),
        (None, None),
        ("plain: text", "plain: text"),
        (codec.encode({"page": 7}, codec=find_codec("gzip")), {"page": 7}),
        ("gz:that is not packed", "gz:that is not packed"),
    ],
    ids=["json", "none", "text", "packed", "looks packed"],
)
async def test_without_the_original_a_replay_takes_the_letters_data(
    face: Face, queue_name: str, raw: Any, data: Any, seen: Any
) -> None:
    dead = f"{queue_name}-dead"
    async with face.queue(dead) as letters, face.queue(queue_name, dead_letter_queue=dead) as queue:
        other = await queue.add("other", "of another job, which was given the id of the original")
        jobs = [await letters.add("work", envelope(queue_name, job_id, data)) for job_id in ("gone", other.id)]
        assert [letter.data for letter in await queue.dead_letters.list()] == [seen, seen]
        for letter in jobs:
            again = await queue.dead_letters.replay(letter.id)
            record = (await queue.get(again.id)).record
            assert (record.name, record.data, record.options) == ("work", seen, {})


async def test_a_replay_whose_reply_was_lost_adds_nothing_twice(face: Face, queue_name: str, raw: Any) -> None:
    dead = f"{queue_name}-dead"
    async with face.queue(dead) as letters, face.queue(queue_name, dead_letter_queue=dead) as queue:
        letter = await letters.add("work", envelope(queue_name, "gone", 1))
        before = raw.dump(letters.keys.job(letter.id))
        first = await queue.dead_letters.replay(letter.id)
        raw.restore(letters.keys.job(letter.id), 0, before)  # as if the process had died before it was removed
        again = await queue.dead_letters.replay(letter.id)
        assert (again.id, again.is_new) == (first.id, False)
        assert not raw.exists(letters.keys.job(letter.id))
        raw.restore(letters.keys.job(letter.id), 0, before)
        raw.xadd(letters.keys.stream, {"jobId": letter.id})  # removed with the job
        assert await queue.dead_letters.replay_all() == 1
        assert not raw.exists(letters.keys.job(letter.id))
        assert [job.id for job in await queue.jobs("waiting")] == [first.id]
        # The letters of a queue that was removed meanwhile have the same ids, but are others.
        await letters.obliterate()
        later = await letters.add("work", envelope(queue_name, "gone", 2))
        raw.hincrby(letters.keys.job(later.id), "timestamp", 1)
        assert later.id == letter.id
        assert (await queue.dead_letters.replay(later.id)).is_new


async def test_all_letters_are_replayed_in_order_page_by_page(face: Face, queue_name: str, raw: Any) -> None:
    dead = f"{queue_name}-dead"
    async with face.queue(dead) as letters, face.queue(queue_name, dead_letter_queue=dead) as queue:
        owners = [f"{queue_name}-2" if n % 10 == 0 else queue_name for n in range(500)]
        jobs = await letters.add_bulk([NewJob("work", envelope(owner, "x", n)) for n, owner in enumerate(owners)])
        await letters.remove(jobs[1].id)  # its place in the stream stays behind
        assert len(await queue.dead_letters.list()) == 100
        assert await queue.dead_letters.replay_all(250) == 250
        assert await queue.dead_letters.replay_all() == 199
        assert await queue.dead_letters.replay_all() == 0
        replayed = [job.record.data for job in await queue.jobs("waiting")]
        assert replayed == [n for n in range(500) if n % 10 and n != 1]
        assert raw.xlen(letters.keys.stream) == 50


async def test_a_job_that_dies_again_is_not_replayed_for_ever(face: Face, queue_name: str, raw: Any) -> None:
    deaths = 0

    async def work(_: AsyncActiveJob) -> None:
        nonlocal deaths
        deaths += 1
        raise ValueError("again")

    async with face.queue(queue_name) as queue, working(queue, face.url, work):
        await queue.add_bulk([NewJob("work") for _ in range(5)])
        await wait_until(lambda: deaths == 5, "all to die")
        await wait_until(lambda: raw.zcard(queue.keys.failed) == 5, "all to be told")
        assert await queue.dead_letters.replay_all() == 5
        await wait_until(lambda: raw.zcard(queue.keys.failed) == 10, "all to die again")
        assert len(await queue.dead_letters.list()) == 5


async def test_odd_options_of_other_clients_are_replayed_as_far_as_they_can_be(
    face: Face, queue_name: str, raw: Any
) -> None:
    dead = f"{queue_name}-dead"
    odd: list[tuple[Any, dict[str, str | None]]] = [
        ({"priority": 99999, "attempts": -1}, {"priority": "2048", "maxAttempts": "0"}),
        ({"priority": "high", "lifo": 1, "ttl": "x"}, {"priority": "0", "lifo": None, "expireAt": None}),
        ({"ordering": {"key": "__"}, "lifo": True}, {"groupKey": None, "lifo": "1"}),
        ({"ordering": {"key": "k"}, "lifo": True}, {"groupKey": "k", "lifo": None}),
        ({"ordering": {"key": "k2", "concurrency": 0, "rateLimit": {"max": 0}}}, {"groupKey": "k2"}),
        (
            {"ordering": {"key": "k3", "tokenBucket": {"capacity": 2, "refillRate": 1}}, "cost": 9},
            {"groupKey": "k3", "cost": "2000"},
        ),
        ({"ordering": {"key": "k4", "tokenBucket": {"capacity": 0.5, "refillRate": 1}}}, {"groupKey": "k4"}),
        ({"ordering": "k5", "attempts": 1e300}, {"groupKey": None}),
        ([1], {"priority": "0"}),
    ]
    async with face.queue(dead) as letters, face.queue(queue_name, dead_letter_queue=dead) as queue:
        for options, fields in odd:
            original = await queue.add("work", options)
            raw.hset(queue.keys.job(original.id), "opts", json.dumps(options))
            letter = await letters.add("work", envelope(queue_name, original.id))
            again = await queue.dead_letters.replay(letter.id)
            stored = raw.hgetall(queue.keys.job(again.id))
            assert {name: stored.get(name) for name in fields} == fields
            assert stored["data"] == json.dumps(options, separators=(",", ":"))


async def test_a_letter_that_a_worker_holds_goes_too(face: Face, queue_name: str, raw: Any) -> None:
    dead = f"{queue_name}-dead"
    async with face.queue(dead) as letters, face.queue(queue_name, dead_letter_queue=dead) as queue:
        with HandWorker(face.url, dead) as hand:
            await letters.add("work", envelope(queue_name, "x"))
            hand.take()
            assert len(await queue.dead_letters.list()) == 1
            assert await queue.dead_letters.purge() == 1
            assert await queue.dead_letters.list() == []


async def test_bad_calls_are_refused_and_nothing_is_written(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        for attempt, says in (
            (queue.dead_letters.list(offset=-1), "`offset` must be a whole number"),
            (queue.dead_letters.list(limit=-2), "`limit` must be a whole number"),
            (queue.dead_letters.replay_all(-1), "`limit` must be a whole number"),
            (queue.dead_letters.replay_all(True), "`limit` must be a whole number"),
        ):
            with pytest.raises(UsageError, match=says):
                await attempt
    with pytest.raises(InvalidNameError):
        face.queue(queue_name, dead_letter_queue="a:b")
    with pytest.raises(InvalidOptionError, match="cannot keep its own dead letters"):
        face.queue(queue_name, dead_letter_queue=queue_name)
    for letters, refusal in ((queue_name, InvalidOptionError), ("a:b", InvalidNameError)):
        with pytest.raises(refusal):
            Worker(queue_name, lambda job: None, options=WorkerOptions(dead_letter_queue=letters))
    assert raw.dbsize() == 0
