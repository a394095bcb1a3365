"""A queue read with Spark: jobs of every state, results and dead letters, in parts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.states import JobState
from orchestration_queue.testing import drain
from orchestration_queue.worker import ActiveJob
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 2500


def work(data: Any) -> Any:
    """Fail for multiples of 10."""
    if data["n"] % 10 == 0:
        raise ValueError(f"no {data['n']}")
    return {"twice": 2 * data["n"]}


@pytest.fixture
def queue(raw: redis.Redis, server_url: str, queue_name: str) -> Any:
    with Queue(queue_name, url=server_url) as made:
        yield made


@pytest.fixture
def read(spark: Any, server_url: str, queue_name: str) -> Any:
    """A function that reads the queue with some options."""

    def load(**options: Any) -> Any:
        return spark.read.format("orchestration_queue").options(**{"url": server_url, **options}).load(queue_name)

    return load


def fill(queue: Queue) -> None:
    """300 jobs done, 30 of them failed with a letter each; 5 delayed, 7 on lists and 2,500 waiting."""
    queue.add_bulk([NewJob("double", {"n": n}) for n in range(300)])
    letters = WorkerOptions(concurrency=20, dead_letter_queue=f"{queue.name}-dead")
    drain(queue, lambda job: work(job.data), timeout=60, raise_failures=False, options=letters)
    queue.add_bulk([NewJob("later", {"n": n}, JobOptions(delay=timedelta(hours=1))) for n in range(5)])
    queue.add_bulk([NewJob("newest", {"n": n}, JobOptions(lifo=True)) for n in range(7)])
    queue.add_bulk([NewJob("ready", {"n": n}) for n in range(COUNT)])


def test_tags_and_kinds_of_failure_are_columns(queue: Queue, read: Any) -> None:
    queue.add("n", {"n": 10}, options=JobOptions(tags=["tenant:acme", "night"]))
    queue.add("n", {"n": 1})
    drain(queue, lambda job: work(job.data), timeout=60, raise_failures=False)
    rows = {row.state: row for row in read(columns="id,state,tags,failure_kind").collect()}
    assert (json.loads(rows["failed"].tags), rows["failed"].failure_kind) == (["tenant:acme", "night"], "ValueError")
    assert (rows["completed"].tags, rows["completed"].failure_kind) == (None, None)


def test_a_limit_reads_no_more_than_it_needs(queue: Queue, raw: redis.Redis, read: Any) -> None:
    queue.add_bulk([NewJob("ready", {"n": n}) for n in range(COUNT)])

    def read_calls() -> int:
        calls: dict[str, Any] = raw.info("commandstats")
        return sum(calls.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("fcall", "fcall_ro", "hmget"))

    before = read_calls()
    rows = read(limit=5).collect()
    assert len(rows) == len({row.id for row in rows}) == 5
    few = read_calls() - before
    assert len(read().collect()) == COUNT
    assert few * 10 < read_calls() - before - few
    assert len(read(limit=COUNT + 1).collect()) == COUNT
    assert read(limit=300, read="events", columns="id").count() == 300
    assert read(limit=5, read="dead_letters").collect() == []


def test_every_job_is_read_once_whatever_its_state_and_the_parts(queue: Queue, read: Any) -> None:
    fill(queue)
    for parts in (1, 3):
        frame = read(numPartitions=parts)
        rows = frame.collect()
        assert len(rows) == len({row.id for row in rows}) == 300 + 5 + 7 + COUNT
        found = {state: sum(row.state == state for row in rows) for state in ("completed", "failed", "delayed")}
        assert found == {"completed": 270, "failed": 30, "delayed": 5}
    assert frame.count() == len(rows)
    assert frame.rdd.getNumPartitions() >= 3 + 2
    some = read(states="failed, delayed", columns="name,id").collect()
    assert sorted({row.name for row in some}) == ["double", "later"]
    assert len(some) == 35
    assert some[0].__fields__ == ["name", "id"]

    row = frame.where("id = '2'").collect()[0]
    assert (row.name, row.state, json.loads(row.data), row.failed_reason) == ("double", "completed", {"n": 1}, None)
    assert (row.attempts_made, row.max_attempts, row.priority) == (0, 0, 0)
    job = queue.get("2")
    assert job.record.finished_at is not None
    assert row.finished_at.astimezone(UTC) == job.record.finished_at
    assert (row.started_at is not None, row.parent_id) == (True, None)


def test_results_and_dead_letters_are_read(queue: Queue, read: Any) -> None:
    fill(queue)
    results = read(read="results").collect()
    assert sorted(json.loads(row.result)["twice"] for row in results) == [2 * n for n in range(300) if n % 10]
    for options in ({}, {"deadLetterQueue": f"{queue.name}-dead", "numPartitions": 3}):
        letters = read(read="dead_letters", **options).collect()
        assert sorted(json.loads(row.data)["n"] for row in letters) == list(range(0, 300, 10))
    assert letters[0].failed_reason.startswith("ValueError: no ")
    assert letters[0].added_at is not None
    assert read(read="dead_letters", columns="id").count() == 30


def test_an_empty_queue_has_no_rows_of_anything(queue: Queue, read: Any) -> None:
    for what in ("jobs", "results", "dead_letters", "statistics"):
        assert read(read=what).collect() == []


def test_statistics_are_read_by_day_and_task(queue: Queue, read: Any) -> None:
    fill(queue)
    wait_until_sync(lambda: queue.statistics().all.completed == 270, "the worker's count", 60)
    (row,) = read(read="statistics").collect()
    found = queue.statistics()
    task = found.tasks["double"]
    assert (row.day, row.name, row.started, row.completed, row.failed, row.retried) == (
        found.day.isoformat(), "double", task.wait.count, 270, 30, task.retried,
    )  # fmt: skip
    assert row.run_mean_s == task.run.mean.total_seconds()
    assert (row.wait_p99_s, row.wait_deviation_s) == (
        task.wait.p99.total_seconds(),
        task.wait.deviation.total_seconds(),
    )
    some = read(read="statistics", columns="failed,name")
    assert [tuple(each) for each in some.collect()] == [(30, "double")]
    assert some.where("failed > 30").count() == 0


def test_durable_steps_are_rows(queue: Queue, read: Any) -> None:
    def pages(job: ActiveJob) -> int:
        for number in range(job.data["pages"]):
            job.step(f"page-{number}", len, "ab")
        if job.data["pages"] == 2:
            raise UnrecoverableError("enough")
        return 0

    queue.add_bulk([NewJob("fetch", {"pages": count}, JobOptions(job_id=f"j{count}")) for count in (0, 2, 3)])
    drain(queue, pages, timeout=60, raise_failures=False)
    rows = {(row.job_id, row.number): row for row in read(read="steps").collect()}
    assert sorted(rows) == [("j2", 1), ("j2", 2), ("j3", 1), ("j3", 2), ("j3", 3)]
    row, step = rows["j3", 2], queue.get("j3").steps()[1]
    assert (row.job_name, row.name, row.kind, row.attempt, row.size) == ("fetch", "page-1", "returned", 1, 1)
    assert row.ended_at.timestamp() == pytest.approx(step.ended_at.timestamp())  # type: ignore[union-attr]
    assert (row.until, row.duration_s) == (None, step.duration.total_seconds())
    assert read(read="steps", states="failed", columns="name").count() == 2
    assert len(read(read="steps", limit=4).collect()) == 4


def test_shares_tracking_and_steps_are_columns_of_jobs(queue: Queue, read: Any, raw: redis.Redis) -> None:
    queue.add("n", None, {"share": "acme", "tags": ["red"]}).track()
    queue.add("n")
    raw.hset(queue.keys.job("1"), "steps", 3)
    rows = {row.id: row for row in read(columns="id,share,tags,tracked_at,steps").collect()}
    assert (rows["1"].share, json.loads(rows["1"].tags), rows["1"].tracked_at is not None) == ("acme", ["red"], True)
    assert (rows["2"].share, rows["2"].tracked_at, rows["2"].steps) == (None, None, None)
    assert rows["1"].steps == 3


def test_filters_spare_the_reading_of_other_states_and_times(queue: Queue, read: Any, raw: redis.Redis) -> None:
    fill(queue)
    finished = [*queue.jobs(JobState.COMPLETED), *queue.jobs(JobState.FAILED)]
    ended = sorted(at for job in finished if (at := job.record.finished_at))
    middle = ended[150]
    raw.config_resetstat()
    for frame, count in (
        (read(pushFilters="true").where("state = 'failed'"), 30),
        (read(pushFilters="true").where("state in ('failed', 'delayed')"), 35),
    ):
        assert len(frame.collect()) == count
    assert raw.info("commandstats")["cmdstat_hmget"]["calls"] == 65
    newer = read(pushFilters="true").where(f"finished_at >= timestamp_millis({int(middle.timestamp() * 1000)})")
    assert newer.count() == sum(at >= middle for at in ended)


def test_a_schema_may_name_the_columns(spark: Any, queue: Queue, server_url: str) -> None:
    queue.add("ready", {"n": 1})
    reader = spark.read.format("orchestration_queue").option("url", server_url)
    (row,) = reader.schema("data string, added_at timestamp").load(queue.name).collect()
    assert json.loads(row.data) == {"n": 1}
    assert row.added_at < datetime.now()  # noqa: DTZ005  Spark gives local times


def test_what_other_clients_left_is_read_as_far_as_it_can_be(queue: Queue, read: Any, raw: redis.Redis) -> None:
    job = queue.add("odd")
    raw.hset(
        queue.keys.job(job.id), mapping={"data": b"\xff{}", "attemptsMade": "1.0", "priority": "", "processedOn": "x"}
    )
    (row,) = read().collect()
    assert (row.data, row.attempts_made, row.priority, row.started_at) == ("\ufffd{}", 1, None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"read": "tables"},
            "Option read for reading a queue must be one of jobs, results, steps, events, dead_letters, statistics",
        ),
        ({"stats": "failed"}, "Unknown option 'stats' for reading a queue; did you mean states? Use queue,"),
        ({"states": "gone"}, "Option states must name states of which the queue keeps lists, got 'gone'; use waiting,"),
        (
            {"states": "failed", "read": "results"},
            "Option states applies to read=jobs and read=steps, got read=results; remove it.",
        ),
        ({"columns": "id,size"}, "'jobs' has no column 'size'; use id, name,"),
        (
            {"numPartitions": "0"},
            "numPartitions for reading a queue must be an integer from 1 to 10,000, got '0'; pass",
        ),
        (
            {"numPartitions": "many"},
            "numPartitions for reading a queue must be an integer from 1 to 10,000, got 'many'",
        ),
        ({"limit": "0"}, "must be an integer from 1 to 1,000,000, got '0'; pass"),
        ({"limit": "5", "pushFilters": "true"}, "Options limit and pushFilters exclude each other"),
        ({"pushFilters": "yes"}, "pushFilters for reading a queue must be true or false, got 'yes'; pass"),
        ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire cannot carry"),
        ({"url": "http://x"}, "http"),
        (
            {"url": "redis://:hidden@localhost"},
            "Option url must not contain a password, because Spark writes options to plans",
        ),
        ({"urlVariable": "HERE"}, "Options url and urlVariable exclude each other; pass one of them."),
    ],
)
def test_bad_options_are_refused_in_a_sentence(read: Any, options: dict[str, str], message: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as caught:
        read(**options)
    assert message in str(caught.value)
    assert "hidden" not in str(caught.value)
