"""Every option of a sensor on events: what it is for, and what is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.dagster import QueueEvent, QueueResource, queue_event_sensor, request_run
from orchestration_queue.dagster.sensors.ticks import dump_cursor, load_cursor
from orchestration_queue.dagster.testing import evaluate_sensor
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, StateError, UsageError
from orchestration_queue.worker import AsyncActiveJob
from tests.dagster.ticks import SHORT, happened, target, tick
from tests.workers import working

pytestmark = pytest.mark.dagster


def made(react: Any = request_run, **options: Any) -> dg.SensorDefinition:
    """A sensor for tests, which hears everything and does not wait."""
    given = {"react": react, "name": "heard", "job": target, "start": "oldest", "wait": SHORT, **options}
    sensor: dg.SensorDefinition = queue_event_sensor(**given)
    return sensor


def keys_of(result: Any) -> list[str | None]:
    return [request.run_key for request in result.run_requests]


def jobs_of(result: Any) -> list[str]:
    return [request.tags["orchestration_queue/job_id"] for request in result.run_requests]


def trim(raw: redis.Redis, queue: str, left: int) -> None:
    raw.xtrim(f"glide:{{{queue}}}:events", maxlen=left, approximate=False)


def test_a_decorated_function_is_a_sensor_of_its_name(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    event_id = happened(raw, queue_name, "completed", "1")

    @queue_event_sensor(queue=queue_name, job=target, start="oldest", wait=SHORT)
    def uploads(event: QueueEvent, _queue: QueueResource) -> dg.RunRequest:
        return dg.RunRequest(tags={"queue": event.queue})

    assert uploads.name == "uploads"
    result = tick(uploads, resource, None)
    assert keys_of(result) == [event_id]
    assert [request.tags["queue"] for request in result.run_requests] == [queue_name]


def test_several_queues_have_a_cursor_each(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    one, two = f"{queue_name}-1", f"{queue_name}-2"
    first = happened(raw, one, "completed", "a")
    second = happened(raw, two, "completed", "b")
    sensor = made(queue=[one, two])
    result = tick(sensor, resource, None)
    assert keys_of(result) == [f"{one}:{first}", f"{two}:{second}"]
    assert json.loads(result.cursor or "") == {one: first, two: second}
    third = happened(raw, two, "completed", "c")
    again = tick(sensor, resource, result.cursor)
    assert keys_of(again) == [f"{two}:{third}"]
    assert json.loads(again.cursor or "") == {one: first, two: third}


def test_a_queue_that_is_added_later_starts_where_the_options_say(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    one, two = f"{queue_name}-1", f"{queue_name}-2"
    heard, past = happened(raw, one, "completed", "a"), happened(raw, two, "completed", "b")
    cursor = dump_cursor({one: heard})
    assert jobs_of(tick(made(queue=[one, two]), resource, cursor)) == ["b"]
    late = tick(made(queue=[one, two], start="now"), resource, cursor)
    assert not late.run_requests
    assert json.loads(late.cursor or "") == {one: heard, two: past}


def test_events_are_chosen_by_type_job_name_and_predicate(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    queue = resource.queue(queue_name)
    extract, load = (queue.add(name, {}) for name in ("extract", "load"))
    for job in (extract, load):
        happened(raw, queue_name, "failed", job.id)
        happened(raw, queue_name, "completed", job.id)
    happened(raw, queue_name, "failed", "gone")
    assert jobs_of(tick(made(queue=queue_name, events=["failed"]), resource, None)) == [extract.id, load.id, "gone"]
    by_name = tick(made(queue=queue_name, events=["failed"], job_names=["load"]), resource, None)
    assert jobs_of(by_name) == [load.id]
    by_where = made(queue=queue_name, events=["failed"], where=lambda event: event.job_id == "gone")
    assert jobs_of(tick(by_where, resource, None)) == ["gone"]


async def test_a_durable_step_of_a_name_starts_a_run(resource: QueueResource, queue_name: str, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> None:
        for name in ("extract", "load"):
            await job.step(name, int)

    queue = AsyncQueue(queue_name, url=server_url)
    async with queue, working(queue, work, server_url, emit_step_events=True):
        job = await queue.add("n")
        await job.wait(timedelta(seconds=60))
    loaded = made(queue=queue_name, events=["step"], where=lambda event: event.fields["step"] == "load")
    assert jobs_of(await asyncio.to_thread(tick, loaded, resource, None)) == [job.id]


def test_a_reaction_is_told_the_jobs_name(resource: QueueResource, queue_name: str) -> None:
    resource.queue(queue_name).add("extract", {})
    seen: list[str | None] = []
    sensor = made(
        lambda event, _: seen.append(event.job_name), queue=queue_name, events=["added"], job_names=["extract"]
    )
    tick(sensor, resource, None)
    assert seen == ["extract"]


def test_an_event_may_ask_for_several_runs(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    event_id = happened(raw, queue_name, "completed", "1")

    def twice(_event: QueueEvent, _queue: QueueResource) -> Iterator[dg.RunRequest]:
        yield dg.RunRequest()
        yield dg.RunRequest(run_key="mine")
        yield dg.RunRequest()

    assert keys_of(tick(made(twice, queue=queue_name), resource, None)) == [event_id, "mine", f"{event_id}:2"]


def test_asset_events_say_which_event_they_come_from(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    event_id = happened(raw, queue_name, "completed", "7")

    def told(event: QueueEvent, _queue: QueueResource) -> list[Any]:
        return [
            dg.AssetMaterialization("table", metadata={"rows": 3}),
            dg.AssetObservation("table"),
            dg.AssetCheckEvaluation(asset_key=dg.AssetKey("table"), check_name="full", passed=event.job_id == "7"),
        ]

    result = tick(made(told, queue=queue_name, job=None), resource, None)
    assert len(result.asset_events) == 3
    for event in result.asset_events:
        assert event.metadata["orchestration_queue/event_id"].value == event_id
        assert event.metadata["orchestration_queue/queue"].value == queue_name
    assert result.asset_events[0].metadata["rows"].value == 3
    assert "3 asset events" in (result.skip_message or "")


def test_events_are_mapped_to_partitions_which_are_added_as_they_come(
    instance: dg.DagsterInstance, resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    days = dg.DynamicPartitionsDefinition(name="days")

    @dg.asset(partitions_def=days)
    def table() -> None:
        """One partition for each job."""

    for name in ("monday", "tuesday", "other"):
        happened(raw, queue_name, "completed", name)

    def react(event: QueueEvent, _queue: QueueResource) -> list[Any]:
        return [dg.RunRequest(), dg.AssetObservation("table")]

    sensor = made(
        react,
        queue=queue_name,
        job=dg.AssetSelection.assets(table),
        partition=lambda event: event.job_id if event.job_id.endswith("day") else "rest",
        dynamic_partitions=days,
    )
    defs = dg.Definitions(assets=[table], sensors=[sensor])
    result = evaluate_sensor(sensor, {"queue": resource}, instance=instance, definitions=defs)
    assert [request.partition_key for request in result.run_requests] == ["monday", "tuesday", "rest"]
    assert [getattr(event, "partition", None) for event in result.asset_events] == ["monday", "tuesday", "rest"]
    assert list(result.partitions) == ["monday", "tuesday", "rest"]


def test_a_tick_reads_no_more_than_its_limit(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    for number in range(5):
        happened(raw, queue_name, "completed", str(number))
    sensor = made(queue=queue_name, limit=2)
    first = tick(sensor, resource, None)
    assert jobs_of(first) == ["0", "1"]
    assert jobs_of(tick(sensor, resource, first.cursor)) == ["2", "3"]


@pytest.mark.parametrize(("linger_s", "met"), [(5, ["first", "second"]), (0, ["first"])])
def test_what_follows_closely_is_met_by_the_same_tick(
    resource: QueueResource, queue_name: str, raw: redis.Redis, linger_s: float, met: list[str]
) -> None:
    happened(raw, queue_name, "completed", "first")

    def then_another(event: QueueEvent) -> bool:
        if event.job_id == "first":
            happened(raw, queue_name, "completed", "second")
        return True

    # With two events a tick is full, and lingers no longer.
    sensor = made(queue=queue_name, where=then_another, linger=timedelta(seconds=linger_s), limit=2)
    first = tick(sensor, resource, None)
    assert jobs_of(first) == met
    assert jobs_of(tick(sensor, resource, first.cursor)) == ["second"][: 2 - len(met)]


def test_a_tick_whose_time_is_up_leaves_the_rest_to_the_next(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    for number in range(3):
        happened(raw, queue_name, "completed", str(number))
    ends_at = time.monotonic() + 0.01

    def slow(event: QueueEvent, queue: QueueResource) -> dg.RunRequest:
        while time.monotonic() < ends_at:  # as long as a slow reaction takes
            pass
        return request_run(event, queue)

    sensor = made(slow, queue=queue_name, tick_limit=timedelta(milliseconds=1))
    cursor, seen = None, []
    for _ in range(3):
        result = tick(sensor, resource, cursor)
        cursor = result.cursor
        seen.append(jobs_of(result))
    assert seen == [["0"], ["1"], ["2"]]


def test_what_was_asked_for_before_a_reaction_raises_is_kept(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    happened(raw, queue_name, "completed", "good")
    happened(raw, queue_name, "completed", "bad")

    def fragile(event: QueueEvent, queue: QueueResource) -> dg.RunRequest:
        if event.job_id == "bad":
            raise LookupError("bad")
        return request_run(event, queue)

    sensor = made(fragile, queue=queue_name)
    first = tick(sensor, resource, None)
    assert jobs_of(first) == ["good"]
    assert any("failed; the next tick starts with it" in line for line in first.log)
    with pytest.raises(LookupError):
        tick(sensor, resource, first.cursor)


def lossy(raw: redis.Redis, queue: str) -> str:
    """Two unheard events are dropped, one is kept; returns the cursor of a reader that had heard the first."""
    heard = happened(raw, queue, "completed", "1")
    for number in ("2", "3", "4"):
        happened(raw, queue, "completed", number)
    trim(raw, queue, 1)
    return dump_cursor({queue: heard})


def test_a_gap_can_be_observed(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    cursor = lossy(raw, queue_name)
    result = tick(made(queue=queue_name, on_gap="observe", gap_asset="queues/gaps"), resource, cursor)
    (observed,) = result.asset_events
    assert observed.asset_key == dg.AssetKey(["queues", "gaps"])
    assert observed.metadata["orchestration_queue/queue"].value == queue_name
    assert observed.metadata["orchestration_queue/lost_after"].value == load_cursor(cursor, [queue_name])[queue_name]
    assert jobs_of(result) == ["4"]
    assert not tick(made(queue=queue_name, on_gap="observe", gap_asset="x"), resource, result.cursor).asset_events


def test_a_gap_can_fail_the_tick_until_the_cursor_is_set(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    cursor = lossy(raw, queue_name)
    sensor = made(queue=queue_name, on_gap="fail")
    with pytest.raises(StateError, match="dropped events after") as raised:
        tick(sensor, resource, cursor)
    advised = str(raised.value).partition("cursor to ")[2]
    assert jobs_of(tick(sensor, resource, advised)) == ["4"]


def test_who_starts_late_has_missed_nothing(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    lossy(raw, queue_name)
    assert jobs_of(tick(made(queue=queue_name, on_gap="fail"), resource, None)) == ["4"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"queue": []}, "one queue or several"),
        ({"queue": ["a", "a"]}, "one queue or several"),
        ({"events": []}, "lists of words"),
        ({"events": "failed"}, "lists of words"),
        ({"job_names": "extract"}, "lists of words"),
        ({"limit": 0}, "from 1 to 10000 events"),
        ({"limit": 10_001}, "from 1 to 10000 events"),
        ({"wait": timedelta(0)}, "above 0 and at most 50 s"),
        ({"tick_limit": timedelta(seconds=51)}, "`tick_limit` must be above 0 and at most 50 s, got 51 s"),
        ({"on_gap": "ignore"}, "on_gap"),
        ({"on_gap": "observe"}, "gap_asset` require each other"),
        ({"gap_asset": "a"}, "gap_asset` require each other"),
        ({"start": "yesterday"}, "start"),
        ({"dynamic_partitions": dg.DynamicPartitionsDefinition(name="d")}, "pass partition="),
        ({"resource": "queue"}, "no option 'resource'"),
        ({"name": None, "react": lambda *_: None}, "pass name="),
    ],
)
def test_bad_options_are_refused_where_they_are_written(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidOptionError, match=match):
        made(**{"queue": "q", **options})


def test_a_name_that_the_wire_cannot_carry_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        made(queue=["q", "a:b"])


@pytest.mark.parametrize("cursor", ["nonsense", "[]", '{"q": 7}', '{"q": "then"}'])
def test_a_cursor_that_cannot_be_read_is_refused(cursor: str) -> None:
    with pytest.raises(UsageError, match="must be a JSON object of queues"):
        load_cursor(cursor, ["q"])


def test_an_older_cursor_is_understood() -> None:
    assert load_cursor("17-3", ["q"]) == {"q": "17-3"}
    assert load_cursor(None, ["q"]) == {}


def test_an_answer_that_dagster_does_not_know_is_refused(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    happened(raw, queue_name, "completed", "1")
    with pytest.raises(UsageError, match=r"returned int for event .*; return run requests"):
        tick(made(lambda *_: 7, queue=queue_name), resource, None)


def test_the_sensor_stands_as_the_options_say() -> None:
    sensor = made(queue="q", resource_key="other", default_status=dg.DefaultSensorStatus.RUNNING, description="Shown.")
    assert sensor.required_resource_keys == {"other"}
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.description == "Shown."
