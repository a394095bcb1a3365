"""The light producer, and the one way in which all clients add jobs; both faces, against a real server."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from orchestration_queue.client import NewJob, Producer, Queue
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, PayloadError, ServerError, UsageError
from orchestration_queue.options import Deduplication, JobOptions, Ordering, TokenBucket
from orchestration_queue.server import Connection
from tests.faces import Face


def tokens(cost: float, capacity: float) -> JobOptions:
    return JobOptions(cost=cost, ordering=Ordering(key="k", token_bucket=TokenBucket(capacity=capacity, refill_rate=1)))


async def test_a_producer_stores_what_a_queue_stores(face: Face, queue_name: str, raw: Any) -> None:
    options = JobOptions(attempts=3, delay=60, priority=2)
    async with (
        face.producer(queue_name, codec="gzip") as producer,
        face.queue(queue_name, codec="gzip") as queue,
    ):
        by_producer = await producer.add("send", {"to": "zoë"}, options)
        by_queue = (await queue.add("send", {"to": "zoë"}, options)).id
        one, other = (raw.hgetall(queue.keys.job(str(job_id))) for job_id in (by_producer, by_queue))
    assert (by_producer, by_queue) == ("1", "2")
    assert one.keys() == other.keys()
    assert {name for name in one if one[name] != other[name]} <= {"id", "timestamp"}
    assert one["data"].startswith("gz:")


async def test_a_job_that_was_there_has_no_new_id_and_places_are_kept(face: Face, queue_name: str, raw: Any) -> None:
    mine, once = JobOptions(job_id="mine"), JobOptions(deduplication=Deduplication(id="once"))
    async with face.producer(queue_name) as producer:
        assert await producer.add("work", options=mine) == "mine"
        assert await producer.add("work", options=mine) is None
        assert await producer.add("work", options=once) == "1"
        assert await producer.add("work", options=once) is None
        jobs = [NewJob("work"), NewJob("work", options=mine), NewJob("work", options=once), NewJob("work")]
        assert await producer.add_bulk(jobs) == ["2", None, None, "3"]
        many = [NewJob("work", n, mine if n == 1500 else JobOptions()) for n in range(2200)]
        ids = await producer.add_bulk(many)
        assert await producer.add_bulk([]) == []
    assert [place for place, job_id in enumerate(ids) if job_id is None] == [1500]
    assert [raw.hget(producer.keys.job(str(ids[n])), "data") for n in (0, 1499, 1501, 2199)] == [
        *("0", "1499", "1501", "2199")
    ]


async def test_a_producer_makes_one_trip(face: Face, queue_name: str, raw: Any) -> None:
    async with face.producer(queue_name) as producer:
        await producer.add("work", options=JobOptions(job_id="mine"))
        with raw.monitor() as monitor:
            await producer.add("work", options=JobOptions(job_id="mine"))
            raw.echo("end")
            asked = []
            while (heard := monitor.next_command())["command"] != "ECHO end":
                asked += [heard["command"].split()[0]] if heard["client_type"] != "lua" else []
    assert [word for word in asked if word != "CLIENT"] == ["FCALL"]  # CLIENT is how the test's own clients begin


async def test_children_of_any_portion_find_their_own_parent(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue, face.producer(f"{queue_name}-2") as producer:
        parents = await queue.add_bulk([NewJob("parent") for _ in range(3)])
        there = JobOptions(job_id="there")
        await producer.add("child", options=there)
        children = [NewJob("child", options=there, parent=parents[0].ref)]
        children += [NewJob("child", parent=parent.ref) for parent in parents]
        ids = await producer.add_bulk(children)
        assert ids[0] is None
        waits_for = [raw.smembers(queue.keys.deps(parent.id)) for parent in parents]
    assert waits_for == [{producer.keys.member(str(job_id))} for job_id in ids[1:]]


async def test_a_refused_job_is_named_and_all_others_are_there(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue, face.queue(f"{queue_name}-2") as other:
        parent = await other.add("parent")
        raw.set(queue.keys.named("dedup"), "in the way", px=60_000)
        jobs = [
            NewJob("fine"),
            NewJob("refused", options=JobOptions(deduplication=Deduplication(id="once"))),
            NewJob("fine", parent=parent.ref),
        ]
        with pytest.raises(ServerError, match=r"^Job 1 of 3, counted from 0, was refused, and 2 others were added: "):
            await queue.add_bulk(jobs)
        waiting = await queue.jobs("waiting")
        assert [job.record.name for job in waiting] == ["fine", "fine"]
        # The parent waits for the child that was added, though its neighbour was refused.
        assert raw.smembers(other.keys.deps(parent.id)) == {queue.keys.member(waiting[1].id)}
        raw.delete(queue.keys.named("dedup"))


async def test_a_portion_that_is_refused_as_a_whole_says_how_far_it_came(face: Face, queue_name: str, raw: Any) -> None:
    async with face.producer(queue_name) as producer:
        await producer.add("work")
        raw.set(producer.keys.scheduled, "in the way", px=60_000)
        jobs = [NewJob("work", n, JobOptions(delay=60 if n == 1200 else 0)) for n in range(1500)]
        with pytest.raises(ServerError, match=r"^Job 1\d{3} of 1500, counted from 0, was refused, and 1\d{3} others"):
            await producer.add_bulk(jobs)
        raw.delete(producer.keys.scheduled)


BAD_JOBS: list[tuple[str, dict[str, Any], type[UsageError], str]] = [
    ("no name", {"name": ""}, UsageError, "`name` must be a non-empty string"),
    ("number as name", {"name": 7}, UsageError, "`name` must be a non-empty string"),
    ("object as data", {"data": object()}, PayloadError, "cannot be written as JSON"),
    ("large data", {"data": "x" * 1_048_576}, PayloadError, "exceeds maximum size"),
    ("word of the wire", {"options": JobOptions(job_id="skipped")}, InvalidOptionError, "is reserved for replies"),
]


@pytest.mark.parametrize(
    ("arguments", "error", "says"), [row[1:] for row in BAD_JOBS], ids=[row[0] for row in BAD_JOBS]
)
async def test_bad_jobs_are_refused_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any, arguments: dict[str, Any], error: type[UsageError], says: str
) -> None:
    bad = {"name": "work", **arguments}
    async with face.producer(queue_name) as producer:
        for add in (lambda: producer.add(**bad), lambda: producer.add_bulk([NewJob("fine"), NewJob(**bad)])):
            with pytest.raises(error, match=says) as caught:
                await add()
            assert str(caught.value).endswith(".")
    assert raw.dbsize() == 0


def test_bad_settings_are_refused_before_connecting(face: Face, queue_name: str) -> None:
    with pytest.raises(InvalidNameError):
        face.producer("a:b", url="redis://localhost:1")
    with pytest.raises(UsageError, match="Codec 'zip' is unknown"):
        face.producer(queue_name, codec="zip")
    with pytest.raises(UsageError, match="Both `url` and `connection`"):
        face.producer(queue_name, connection=object())


def test_a_producer_loads_nothing_it_does_not_need() -> None:
    program = "import sys; from orchestration_queue import Producer, AsyncProducer; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=100).split()
    unneeded = ("croniter", "orchestration_queue.schedules", "orchestration_queue.flows", "orchestration_queue.worker")
    assert "orchestration_queue.client._sync.producer" in loaded
    assert [name for name in loaded if name.startswith(unneeded)] == []


def test_a_queue_and_a_producer_share_a_connection(server_url: str, queue_name: str, raw: Any) -> None:
    with Connection.open(server_url) as connection:
        with Producer(queue_name, connection=connection) as producer:
            assert producer.add("work") == "1"
        assert Queue(queue_name, connection=connection).count() == 1
