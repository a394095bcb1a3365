"""Sensors on the queue's events: met as they happen, each once, and a loss is told."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import dagster as dg
import pytest
import redis

from orchestration_queue.dagster import QueueResource, flow_completed_sensor, queue_event_sensor
from orchestration_queue.dagster.sensors.ticks import listen
from orchestration_queue.dagster.testing import SensorTick
from orchestration_queue.errors import InvalidNameError, InvalidOptionError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.event_log import FIRST_EVENT, Event
from tests.dagster.ticks import SHORT, happened, target, tick
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.dagster


@pytest.fixture
def completions(queue_name: str) -> dg.SensorDefinition:
    """A run for each completed job."""
    return queue_event_sensor(
        lambda event, _: dg.RunRequest(tags={"job": event.job_id}),
        name="completions",
        queue=queue_name,
        job=target,
        start="oldest",
        wait=SHORT,
    )


def test_each_event_asks_for_one_run_and_its_id_is_the_run_key(
    completions: dg.SensorDefinition,
    resource: QueueResource,
    queue_name: str,
    raw: redis.Redis,
) -> None:
    ids = [happened(raw, queue_name, "completed", name) for name in ("1", "2")]
    happened(raw, queue_name, "failed", "3")
    last = happened(raw, queue_name, "added", "4")
    first = tick(completions, resource, None)
    assert [request.run_key for request in first.run_requests] == ids
    assert [request.tags["job"] for request in first.run_requests] == ["1", "2"]
    assert json.loads(first.cursor or "") == {queue_name: last}
    second = tick(completions, resource, first.cursor)
    assert not second.run_requests
    assert second.cursor == first.cursor
    assert f"Read 0 events of queue {queue_name}" in (second.skip_message or "")


def test_an_event_is_met_while_the_tick_listens(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    sensor = queue_event_sensor(
        lambda event, _: dg.RunRequest(run_key=f"mine-{event.job_id}") if event.job_id == "wanted" else None,
        name="waiting",
        queue=queue_name,
        job=target,
        wait=timedelta(seconds=45),
    )
    results: list[SensorTick] = []
    ticking = threading.Thread(target=lambda: results.append(tick(sensor, resource, None)))
    ticking.start()

    def listens(client: dict[str, str]) -> bool:
        return client["cmd"] == "xread" and "b" in client["flags"]  # and has not done so a while ago

    wait_until_sync(lambda: any(map(listens, raw.client_list())), "the tick to listen")
    happened(raw, queue_name, "completed", "wanted")
    ticking.join(30)
    assert not ticking.is_alive(), "the tick should end with the event, not with its time"
    assert [request.run_key for request in results[0].run_requests] == ["mine-wanted"]


def test_a_sensor_that_starts_now_leaves_the_past_alone(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    past = happened(raw, queue_name, "completed", "1")
    sensor = queue_event_sensor(
        lambda _event, _resource: dg.RunRequest(), name="fresh", queue=queue_name, job=target, wait=SHORT
    )
    result = tick(sensor, resource, None)
    assert not result.run_requests
    assert json.loads(result.cursor or "") == {queue_name: past}


def test_events_that_the_server_dropped_unheard_are_reported(
    completions: dg.SensorDefinition,
    resource: QueueResource,
    queue_name: str,
    raw: redis.Redis,
) -> None:
    heard = happened(raw, queue_name, "completed", "1")
    for number in range(2, 7):
        happened(raw, queue_name, "completed", str(number))
    raw.xtrim(f"glide:{{{queue_name}}}:events", maxlen=2, approximate=False)
    result = tick(completions, resource, heard)
    assert [request.tags["job"] for request in result.run_requests] == ["5", "6"]
    assert [f"Queue {queue_name!r} dropped events after {heard}" in line for line in result.log] == [True]


@pytest.mark.parametrize(
    ("trimmed_to", "cursor", "is_lost"),
    [
        (None, "first", False),
        (None, FIRST_EVENT, False),
        (2, "first", True),
        (2, FIRST_EVENT, True),
        (2, "last", False),
    ],
)
def test_a_loss_is_told_from_a_quiet_time(
    resource: QueueResource, queue_name: str, raw: redis.Redis, trimmed_to: int | None, cursor: str, is_lost: bool
) -> None:
    ids = [happened(raw, queue_name, "completed", str(number)) for number in range(5)]
    if trimmed_to:
        raw.xtrim(f"glide:{{{queue_name}}}:events", maxlen=trimmed_to, approximate=False)
    place = {"first": ids[0], "last": ids[-1]}.get(cursor, cursor)
    cursors = {QueueKeys(queue_name): place}
    heard = listen(resource.connection, cursors, select=lambda events: events, wait=SHORT, limit=100)
    assert [gap.id for gap in heard.gaps.values()] == [place] * is_lost


def complete(raw: redis.Redis, queue: str, job_id: str) -> None:
    raw.hset(f"glide:{{{queue}}}:job:{job_id}", mapping={"id": job_id, "state": "completed"})
    happened(raw, queue, "completed", job_id)


def test_a_flow_is_complete_when_all_its_last_nodes_are(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    sensor = flow_completed_sensor(
        "load", last_nodes=["a", "b"], name="loaded", queue=queue_name, job=target, start="oldest", wait=SHORT
    )
    for job_id in ("load-1.first", "load-1.a", "loadless-1.a", "loadless-1.b", "load-2.b", "17"):
        complete(raw, queue_name, job_id)
    early = tick(sensor, resource, None)
    assert not early.run_requests
    complete(raw, queue_name, "load-1.b")
    result = tick(sensor, resource, early.cursor)
    (request,) = result.run_requests
    assert request.run_key == "load-1"
    assert request.tags["orchestration_queue/flow_id"] == "load-1"


def test_a_flow_whose_last_nodes_are_met_together_fires_once(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    sensor = flow_completed_sensor(
        "load", last_nodes=["a", "b"], name="loaded", queue=queue_name, job=target, start="oldest", wait=SHORT
    )
    for job_id in ("load-1.a", "load-1.b"):
        complete(raw, queue_name, job_id)
    result = tick(sensor, resource, None)
    assert [request.run_key for request in result.run_requests] == ["load-1"]


def test_a_last_node_that_is_not_kept_has_completed_nevertheless(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    sensor = flow_completed_sensor(
        "load", last_nodes=["a", "b"], name="loaded", queue=queue_name, job=target, start="oldest", wait=SHORT
    )
    for job_id, end in (("load-1.a", "completed"), ("load-2.a", "failed")):
        flow_id = job_id.partition(".")[0]
        raw.hset(f"glide:{{{queue_name}}}:flow-ends:{flow_id}", job_id, f"{end} 1700000000000 ")
        raw.expire(f"glide:{{{queue_name}}}:flow-ends:{flow_id}", 60)
        complete(raw, queue_name, f"{flow_id}.b")
    assert [request.run_key for request in tick(sensor, resource, None).run_requests] == ["load-1"]


@pytest.mark.parametrize("seconds", [0, -1, 51])
def test_a_wait_that_dagster_would_cut_is_refused(seconds: int) -> None:
    with pytest.raises(InvalidOptionError, match="above 0 and at most 50 s"):
        queue_event_sensor(
            lambda _event, _resource: None, name="s", queue="q", job=target, wait=timedelta(seconds=seconds)
        )


def test_bad_sensors_are_refused_where_they_are_written() -> None:
    with pytest.raises(InvalidOptionError, match=r"`last_nodes` of sensor .s. must not be empty"):
        flow_completed_sensor("load", last_nodes=[], name="s", queue="q", job=target)

    def never(_event: Event, _resource: QueueResource) -> None:
        return None

    with pytest.raises(InvalidNameError):
        queue_event_sensor(never, name="s", queue="a:b", job=target)
