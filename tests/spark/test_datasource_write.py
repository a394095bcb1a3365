"""Rows that become jobs: which jobs, and that each row becomes one, whatever is tried again."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import redis
from pyspark.sql.types import StructType

from orchestration_queue.client import Queue
from orchestration_queue.errors import UsageError
from orchestration_queue.spark.datasource import QueueDataSource
from orchestration_queue.spark.datasource.options import QueueAddress, SourceOptions, own_keys
from orchestration_queue.spark.datasource.write_options import WRITE_OPTIONS, WriteOptions
from orchestration_queue.spark.datasource.writer import RowEncoder, job_id

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def queue(raw: redis.Redis, server_url: str, queue_name: str) -> Any:
    with Queue(queue_name, url=server_url) as made:
        yield made


@pytest.fixture
def write(server_url: str, queue_name: str) -> Any:
    """A function that writes a frame to the queue with some options."""

    def save(frame: Any, mode: str = "append", **options: Any) -> None:
        options = {"url": server_url, "queue": queue_name, **options}
        frame.write.format("orchestration_queue").options(**options).mode(mode).save()

    return save


def encoder(given: SourceOptions, schema: StructType) -> RowEncoder:
    """An encoder of rows for a queue of ours."""
    return RowEncoder(WriteOptions.of(given, schema, QueueAddress.of(given, own_keys(given))), "here.")


def rows_of(queue: Queue) -> list[int]:
    """The ``id`` in the payload of every job that waits."""
    return sorted(job.record.data["id"] for job in queue.jobs("waiting"))


def test_every_row_becomes_a_job_that_any_worker_can_run(spark: Any, queue: Queue, write: Any) -> None:
    when, day = datetime(2026, 3, 29, 1, 30), date(2026, 3, 29)  # noqa: DTZ001  Spark takes local times
    columns = "key string, id bigint, price decimal(9,2), at timestamp_ntz, on date, part struct<tags:array<string>>"
    frame = spark.createDataFrame(
        [("a:b", 1, Decimal("1.50"), when, day, (["x", "ü"],)), ("c%", 2, None, None, None, None)], columns
    )
    write(frame, task="load", idColumn="key", attempts=3)
    first, second = queue.get("load-a%3Ab").record, queue.get("load-c%25").record
    assert first.data == {
        "key": "a:b",
        "id": 1,
        "price": "1.50",
        "at": "2026-03-29T01:30:00.000000",
        "on": "2026-03-29",
        "part": {"tags": ["x", "ü"]},
    }
    assert second.data == {"key": "c%", "id": 2, "price": None, "at": None, "on": None, "part": None}
    assert (first.name, first.max_attempts, first.state) == ("load", 3, "waiting")
    assert first.options == {"jobId": "load-a%3Ab", "attempts": 3}
    assert queue.keys.queue == queue.name


def test_writing_again_adds_only_what_is_new(spark: Any, queue: Queue, write: Any, raw: redis.Redis) -> None:
    for count in (3000, 3000, 5000):
        write(spark.range(count).repartition(3), task="load", idColumn="id")
        assert rows_of(queue) == list(range(count))
    write(spark.range(10), task="other", idColumn="id", emitEvents="false")
    assert queue.count() == 5010
    assert raw.xlen(queue.keys.events) <= 1200
    assert raw.get(queue.keys.id) is None, "keys of the rows' own leave the counter alone"


def test_columns_say_task_priority_delay_and_payload(spark: Any, queue: Queue, write: Any) -> None:
    frame = spark.sql(
        "select id, if(id = 0, 'first', 'second') as kind, cast(id * 5 as int) as urgency, id * 60.5D as wait,"
        " to_json(named_struct('n', id)) as body from range(2)"
    )
    options = {"taskColumn": "kind", "idColumn": "id", "priorityColumn": "urgency", "delayColumn": "wait"}
    write(frame, **options, payloadColumn="body")
    assert queue.get("first-0").record.data == {"n": 0}
    assert queue.get("first-0").record.state == "waiting"
    later = queue.get("second-1").record
    assert (later.name, later.priority, later.state) == ("second", 5, "delayed")
    assert later.options["delay"] == 60_500
    write(frame, **options, payloadColumns="urgency,id", idPrefix="again.")
    assert queue.get("again.1").record.data == {"urgency": 5, "id": 1}
    write(frame, task="rest", idColumn="id", priority=7, delay="2h", delayColumn="wait")
    assert queue.get("rest-0").record.options == {"jobId": "rest-0", "priority": 7}
    assert queue.get("rest-0").record.data == {
        "id": 0,
        "kind": "first",
        "urgency": 0,
        "body": '{"n":0}',
    }


def test_positions_are_ids_where_they_are_asked_for(spark: Any, queue: Queue, write: Any) -> None:
    for _ in range(2):
        write(spark.range(0, 3000, 1, 2), task="load", positionIds="true")
    assert rows_of(queue) == sorted([*range(3000), *range(3000)]), "a write is its own origin"


def test_keys_that_the_wire_cannot_carry_stay_apart() -> None:
    keys = ["a:b", "a%3Ab", "a{", "\n", "é" * 300, "é" * 301]
    made = [job_id("t-", key) for key in keys]
    assert len(set(made)) == len(keys)
    assert made[:2] == ["t-a%3Ab", "t-a%253Ab"]
    assert all(len(found) <= 256 for found in made)
    assert made == [job_id("t-", key) for key in keys]


def test_a_task_that_is_tried_again_adds_no_job_twice(spark: Any, queue: Queue, write: Any, tmp_path: Path) -> None:
    marks = str(tmp_path)

    def break_once(batches: Any) -> Any:
        """Each task fails once behind its first batch, and once kills its own process."""
        import os
        import signal

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 1 and context.attemptNumber() == 0:
                Path(marks, f"raised-{context.partitionId()}").touch()
                raise RuntimeError("broken on purpose")
            if number == 2 and context.attemptNumber() == 1:
                Path(marks, f"killed-{context.partitionId()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 2000)
    frame = spark.range(0, 20_000, 1, 2).mapInArrow(break_once, "id bigint")
    write(frame, task="load", idColumn="id")
    assert len(list(tmp_path.iterdir())) == 4
    assert rows_of(queue) == list(range(20_000))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Option idColumn is missing, so a row that Spark writes again would become a second job; name a"),
        ({"idColumn": "id", "positionIds": "true"}, "Options idColumn and positionIds exclude each other"),
        (
            {"idColumn": "key"},
            "Option idColumn must name a column of the rows, got 'key'; use id, x, b, m.",
        ),
        ({"idColumn": "x"}, "Option idColumn needs a column of type string or tinyint or"),
        (
            {"idColumn": "id", "task": ""},
            "Pass either option task, for all rows, or taskColumn, a column with each row's task.",
        ),
        ({"idColumn": "id", "taskColumn": "x"}, "Pass either option task"),
        ({"idColumn": "id"}, "Column 'b' contains binary, which JSON cannot represent; leave it out with"),
        ({"idColumn": "id", "payloadColumns": "m"}, "Column 'm' contains map<string,int>, which JSON cannot represent"),
        ({"idColumn": "id", "payloadColumns": "z"}, "Option payloadColumns must name a column of the rows, got 'z'"),
        (
            {"idColumn": "id", "payloadColumns": "x", "payloadColumn": "x"},
            "Options payloadColumn and payloadColumns exclude each other",
        ),
        (
            {"idColumn": "id", "payloadColumns": "x", "priority": "0"},
            "priority for writing to a queue must be an integer from 1 to 2,048, got '0'; pass",
        ),
        (
            {"idColumn": "id", "payloadColumns": "x", "delay": "soon"},
            "Option delay must be a duration, got 'soon'; pass",
        ),
        (
            {"idColumn": "id", "task": "a:b"},
            "Job ids begin with the task's name, but 'a:b' contains ':'; pass another beginning as",
        ),
        ({"idColumn": "id", "idPrefix": "{"}, "Option idPrefix is invalid: '{' contains '{'; pass another."),
        ({"idcolum": "id"}, "Unknown option 'idcolum' for writing to a queue; did you mean idColumn? Use queue"),
    ],
)
def test_bad_options_are_refused_before_any_task(spark: Any, options: dict[str, str], message: str) -> None:
    schema = cast(StructType, StructType.fromDDL("id bigint, x double, b binary, m map<string,int>"))
    source = QueueDataSource({"queue": "q", "task": "load", **options})
    with pytest.raises(UsageError) as caught:
        source.writer(schema, overwrite=False)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"key": None}, {}, "Column 'key', which option idColumn names, must not be null or empty; fill it, or"),
        ({"key": ""}, {}, "Column 'key', which option idColumn names, must not be null"),
        (
            {"key": "k", "x": float("nan")},
            {},
            "Column 'x' is nan in the row of k, which JSON cannot represent; replace it",
        ),
        ({"key": "k", "x": float("-inf")}, {"nanAsNull": "false"}, "Column 'x' is -inf in the row of k"),
        ({"key": "k", "body": "a{"}, {"payloadColumn": "body"}, "The payload of job 'load' must be JSON"),
        ({"key": "k", "p": 9999}, {"priorityColumn": "p"}, "JobOptions.priority (given 9999)"),
        ({"key": "k", "d": -1}, {"delayColumn": "d"}, "JobOptions.delay (given"),
    ],
)
def test_a_bad_row_is_refused_in_a_sentence(
    spark: Any, row: dict[str, Any], options: dict[str, str], message: str
) -> None:
    batch = pa.RecordBatch.from_pylist([{"key": "good", **dict.fromkeys(row.keys() - {"key"})}, row])
    types = {"key": "string", "x": "double", "body": "string", "p": "bigint", "d": "bigint"}
    schema = cast(StructType, StructType.fromDDL(", ".join(f"{name} {types[name]}" for name in row)))
    given = SourceOptions({"queue": "q", "task": "load", "idColumn": "key", **options}, WRITE_OPTIONS, "Writing")
    with pytest.raises(UsageError) as caught:
        encoder(given, schema).jobs(batch.slice(1), 0)
    assert message in str(caught.value)


def test_a_number_without_a_word_in_json_is_null_if_wanted(spark: Any) -> None:
    rows = [{"key": f"k{at}", "x": value} for at, value in enumerate((1.5, float("nan"), None, float("inf")))]
    schema = cast(StructType, StructType.fromDDL("key string, x double"))
    options = {"queue": "q", "task": "load", "idColumn": "key", "nanAsNull": "true"}
    given = SourceOptions(options, WRITE_OPTIONS, "Writing")
    jobs = encoder(given, schema).jobs(pa.RecordBatch.from_pylist(rows), 0)
    assert [json.loads(job.data)["x"] for job in jobs] == [1.5, None, None, None]


def test_a_bad_row_fails_the_write_with_its_sentence(spark: Any, queue: Queue, write: Any) -> None:
    with pytest.raises(Exception, match="Column 'key', which option idColumn names, must not be null"):
        write(spark.sql("select cast(null as string) as key"), task="load", idColumn="key")
    assert queue.count() == 0


def test_a_queue_is_not_overwritten(spark: Any, queue: Queue, write: Any) -> None:
    with pytest.raises(Exception, match="A queue cannot be overwritten, because its jobs may run; use mode"):
        write(spark.range(1), mode="overwrite", task="load", idColumn="id")
