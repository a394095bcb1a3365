"""A queue as a stream of Spark: what came, in order, with what was missed told; and streams that become jobs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from pyspark.sql.types import StructType

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.errors import UsageError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.operations.event_log import Position, Tail
from orchestration_queue.protocol.operations.partitions import cut_entries
from orchestration_queue.spark.datasource import QueueDataSource
from orchestration_queue.testing import drain

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def queue(raw: redis.Redis, server_url: str, queue_name: str) -> Any:
    with Queue(queue_name, url=server_url) as made:
        yield made


@pytest.fixture
def follow(spark: Any, server_url: str, queue_name: str, tmp_path: Path) -> Any:
    """A function that runs a query over all that is there, and returns the rows of each of its batches."""

    def run(checkpoint: str = "checkpoint", **options: Any) -> list[list[Any]]:
        batches: list[list[Any]] = []
        options = {"url": server_url, "queue": queue_name, "startingOffsets": "earliest", **options}
        frame = spark.readStream.format("orchestration_queue").options(**options).load()
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(100)
        if query.exception() is not None:
            raise query.exception()
        return batches

    return run


def add(queue: Queue, first: int, last: int) -> None:
    queue.add_bulk([NewJob("ready", {"n": n}, JobOptions(job_id=f"j{n}")) for n in range(first, last)])


def ids(batches: list[list[Any]]) -> list[str]:
    return [row.job_id for batch in batches for row in batch]


def test_events_come_once_over_restarts_in_batches_of_the_wanted_size(queue: Queue, follow: Any) -> None:
    add(queue, 0, 70)
    first = follow(read="events", maxRowsPerTrigger=30)
    assert [len(batch) for batch in first] == [30, 30, 10]
    assert ids(first) == [f"j{n}" for n in range(70)]
    row = first[0][0]
    assert (row.event, row.fields, row.at is not None) == ("added", {"name": "ready"}, True)
    assert follow(read="events") == []
    add(queue, 70, 100)
    second = follow(read="events", maxRowsPerTrigger=30, numPartitions=3)
    assert sorted(ids(second), key=lambda name: int(name[1:])) == [f"j{n}" for n in range(70, 100)]
    drain(queue, lambda job: {"n": job.data["n"]}, timeout=60)
    done = follow(read="events", columns="event,fields")
    results = [
        json.loads(row.fields["returnvalue"])["n"] for batch in done for row in batch if row.event == "completed"
    ]
    assert sorted(results) == list(range(100))


def test_jobs_come_as_they_become_ready_with_their_records(queue: Queue, follow: Any) -> None:
    add(queue, 0, 1200)
    first = follow(read="jobs", columns="id,data,state")
    assert [json.loads(row.data)["n"] for row in first[0]] == list(range(1200))
    add(queue, 1200, 1300)
    assert [row.id for row in follow(read="jobs", columns="id")[0]] == [f"j{n}" for n in range(1200, 1300)]


def test_the_newest_events_alone_come_unless_older_ones_are_asked_for(queue: Queue, follow: Any) -> None:
    add(queue, 0, 5)
    assert ids(follow(read="events", startingOffsets="latest")) == []
    middle = follow("other", read="events")[0][4].id
    add(queue, 5, 8)
    for checkpoint in ("checkpoint", "third"):
        assert ids(follow(checkpoint, read="events", startingOffsets=middle)) == ["j5", "j6", "j7"]


def test_events_that_were_dropped_unread_fail_the_query_unless_it_is_told_to_go_on(
    queue: Queue, follow: Any, raw: redis.Redis
) -> None:
    add(queue, 0, 40)
    assert len(ids(follow(read="events"))) == 40
    raw.xtrim(queue.keys.events, maxlen=0, approximate=False)
    add(queue, 40, 60)
    raw.xtrim(queue.keys.events, maxlen=20, approximate=False)
    assert len(ids(follow(read="events"))) == 20, "what was dropped had been read"
    add(queue, 60, 100)
    raw.xtrim(queue.keys.events, maxlen=39, approximate=False)
    with pytest.raises(
        Exception, match="were dropped before they were read: the queue keeps what a query has not read"
    ):
        follow(read="events")
    assert ids(follow(read="events", failOnDataLoss="false")) == [f"j{n}" for n in range(61, 100)]


def test_a_query_gets_bursts_between_its_runs_under_the_name_in_its_checkpoint(
    queue: Queue, follow: Any, raw: redis.Redis
) -> None:
    add(queue, 0, 10)
    assert len(ids(follow(read="events"))) == 10
    for first in (10, 3010):
        add(queue, first, first + 3000)  # three times what a queue keeps without readers
        assert ids(follow(read="events", maxRowsPerTrigger=2000)) == [f"j{n}" for n in range(first, first + 3000)]
    assert len(raw.hkeys(queue.keys.events_readers)) == 2, "one query, and the earliest position"


def test_a_queue_that_began_anew_is_told(queue: Queue, follow: Any, raw: redis.Redis) -> None:
    add(queue, 0, 3)
    assert len(ids(follow(read="events"))) == 3
    raw.flushall()
    with pytest.raises(Exception, match="was removed and created again"):
        follow(read="events")
    assert follow(read="events", failOnDataLoss="false") == []


def test_events_are_read_without_streaming_too(spark: Any, queue: Queue, server_url: str) -> None:
    add(queue, 0, 100)
    reader = spark.read.format("orchestration_queue").options(url=server_url, read="events", numPartitions=3)
    rows = reader.load(queue.name).collect()
    assert sorted(row.job_id for row in rows) == sorted(f"j{n}" for n in range(100))


def test_a_stream_becomes_jobs_each_once(
    spark: Any, queue: Queue, server_url: str, tmp_path: Path, follow: Any
) -> None:
    """The events of one queue become jobs of another, by their stream ids; a batch that is run again adds nothing."""
    add(queue, 0, 500)

    def copy(checkpoint: str, **options: Any) -> None:
        options = {"url": server_url, "queue": f"{queue.name}-copies", "task": "copy", **options}
        read = {"url": server_url, "read": "events", "startingOffsets": "earliest", "maxRowsPerTrigger": 200}
        query = (
            spark.readStream.format("orchestration_queue").options(**read).load(queue.name).select("id", "job_id")
            .writeStream.format("orchestration_queue").options(**options)
            .option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination(100)
        assert query.exception() is None

    with Queue(f"{queue.name}-copies", url=server_url) as copies:
        for checkpoint in ("one", "one", "two"):
            copy(checkpoint, idColumn="id")
            found = [job.record.data["job_id"] for job in copies.jobs("waiting")]
            assert sorted(found) == sorted(f"j{n}" for n in range(500))
        copy("three", positionIds="true")
        for name in ("2", ".2.crc"):
            (tmp_path / "three" / "commits" / name).unlink()
        copy("three", positionIds="true")
        assert copies.count() == 1000, "the last batch was written twice, under the same numbers"


def test_a_range_of_ids_is_always_cut_in_the_same_way() -> None:
    assert cut_entries("100-0", "200-5", 2) == [("100-0", "150-2"), ("150-2", "200-5")]
    assert cut_entries("5-1", "5-3", 10) == [("5-1", "5-2"), ("5-2", "5-3")]
    assert cut_entries("5-3", "5-3", 10) == cut_entries("6-0", "5-3", 10) == []
    pieces = cut_entries("1-0", "1700000000000-18446744073709551615", 7)
    assert pieces[0][0] == "1-0"
    assert pieces[-1][1] == "1700000000000-18446744073709551615"
    assert all(before[1] == after[0] for before, after in pairwise(pieces))


def test_a_loss_is_told_exactly_where_entries_were_counted() -> None:
    tail = Tail(Position("9-0", 9), 5, "6-0")
    assert [tail.has_lost(Position(f"{n}-0", n)) for n in (4, 5, 6)] == [True, False, False]
    assert [tail.has_lost(Position(f"{n}-0", None)) for n in (5, 6)] == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"read": "results"},
            "Option read must be events or jobs for a stream, got 'results'; use spark.read for results.",
        ),
        ({"read": "dead_letters"}, "Option read must be events or jobs for a stream, got 'dead_letters'"),
        (
            {"startingOffsets": "first"},
            "Option startingOffsets must be earliest, latest or the id of an event, got 'first'; pass",
        ),
        (
            {"maxRowsPerTrigger": "0"},
            "maxRowsPerTrigger for reading a queue must be an integer from 1 to 1,000,000, got '0'; pass",
        ),
        ({"failOnDataLoss": "no"}, "failOnDataLoss for reading a queue must be true or false, got 'no'; pass"),
        (
            {"read": "jobs", "states": "failed"},
            "Option states applies to batch reads, because a stream has jobs as they",
        ),
    ],
)
def test_bad_options_of_streams_are_refused_in_a_sentence(spark: Any, options: dict[str, str], message: str) -> None:
    source = QueueDataSource({"queue": "q", "read": "events", **options})
    with pytest.raises(UsageError) as caught:
        source.streamReader(cast(StructType, StructType.fromDDL("id string")))
    assert message in str(caught.value)
