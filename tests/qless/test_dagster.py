"""The resource and the sensors of Dagster, on real queues."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
import redis

from orchestration_queue.errors import UsageError
from orchestration_queue.wires.qless import QlessClient
from orchestration_queue.wires.qless.dagster import (
    QlessResource,
    qless_event_sensor,
    qless_failure_sensor,
    qless_stalled_sensor,
)
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.dagster
TAG = "orchestration_queue/"


@dg.job
def target() -> None:
    """What sensors request runs of."""


@pytest.fixture
def resource(server: redis.Redis, server_url: str) -> Iterator[QlessResource]:
    made = QlessResource(url=server_url, worker="me")
    yield made
    made.close()


@pytest.fixture
def client(resource: QlessResource) -> QlessClient:
    return resource.client()


def tick(sensor: dg.SensorDefinition, resource: QlessResource, cursor: str | None = None) -> Any:
    with dg.build_sensor_context(cursor=cursor, resources={"qless": resource}) as context:
        return sensor.evaluate_tick(context)


def fail(client: QlessClient, group: str, *jids: str) -> None:
    for jid in jids:
        client.put("q", "app.Import", jid=jid)
        (job,) = client.pop("q")
        client.fail(job, group, "no disk")


def test_each_message_asks_for_a_run(client: QlessClient, resource: QlessResource, server: Any) -> None:
    sensor = qless_event_sensor(job=target, events=["completed"], queues=["q"], wait=50)

    def complete() -> None:
        wait_until_sync(lambda: server.pubsub_numsub("ql:log")[0][1], "the tick to listen")
        for queue, jid in (("other", "b"), ("q", "a")):
            client.put(queue, "K", jid=jid)
        with server.pipeline() as both:  # one after the other, so that one read sees both
            for queue, jid in (("other", "b"), ("q", "a")):
                both.publish("ql:log", f'{{"jid": "{jid}", "event": "completed", "queue": "{queue}"}}')
            both.execute()

    thread = threading.Thread(target=complete)
    thread.start()
    requests: list[dg.RunRequest] = []
    while not requests:
        requests = tick(sensor, resource).run_requests
    thread.join()
    (request,) = requests
    assert (request.tags[TAG + "job_id"], request.tags[TAG + "event"]) == ("a", "completed")
    quiet = tick(qless_event_sensor(job=target, wait=0.01), resource)
    assert "no run" in (quiet.skip_message or "")


def test_each_failure_asks_for_one_run(client: QlessClient, resource: QlessResource) -> None:
    fail(client, "broken", "a", "b", "c")
    fail(client, "ignored", "d")
    sensor = qless_failure_sensor(job=target, groups=["broken"], limit=2)
    found, cursor = [], None
    for _ in range(3):
        result = tick(sensor, resource, cursor)
        found += [request.tags[TAG + "job_id"] for request in result.run_requests or ()]
        cursor = result.cursor
    assert sorted(found) == ["a", "b", "c"]
    fail(client, "broken", "e")
    (request,) = tick(sensor, resource, cursor).run_requests
    assert request.tags[TAG + "failed_reason"] == "broken"
    assert request.run_key.startswith("e:")
    everything = qless_failure_sensor(job=target, react=lambda job: dg.RunRequest(tags={"of": job.jid}))
    assert {request.tags["of"] for request in tick(everything, resource).run_requests} == set("abcde")


def test_each_lost_lock_asks_for_one_run(client: QlessClient, resource: QlessResource) -> None:
    client.set_config("heartbeat", -10)
    client.put("q", "app.Import", jid="a")
    client.pop("q")
    sensor = qless_stalled_sensor("q", job=target)
    first = tick(sensor, resource)
    (request,) = first.run_requests
    assert (request.tags[TAG + "job_id"], request.tags[TAG + "worker"]) == ("a", "me")
    second = tick(sensor, resource, first.cursor)
    assert not second.run_requests
    assert "no run" in (second.skip_message or "")


def test_an_asset_puts_jobs(server: Any, server_url: str) -> None:
    @dg.asset
    def fed(qless: QlessResource) -> None:
        qless.client().put("q", "greet", {"to": "ada"})

    assert dg.materialize([fed], resources={"qless": QlessResource(url=server_url)}).success
    assert server.zcard("ql:q:q-work") == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: qless_event_sensor(job=target, events="completed"),
        lambda: qless_event_sensor(job=target, events=[]),
        lambda: qless_event_sensor(job=target, queues=[""]),
        lambda: qless_event_sensor(job=target, wait=60),
        lambda: qless_event_sensor(job=target, wait=0),
        lambda: qless_event_sensor(job=target, limit=0),
        lambda: qless_failure_sensor(job=target, interval=0),
        lambda: qless_failure_sensor(job=target, groups="x"),
        lambda: qless_failure_sensor(job=target, limit=0),
        lambda: qless_stalled_sensor("", job=target),
        lambda: qless_stalled_sensor("q", job=target, interval=-1),
        lambda: qless_stalled_sensor("q", job=target, limit=True),
    ],
)
def test_mistakes_are_refused_at_once(make: Any) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert "\n" not in str(caught.value)
