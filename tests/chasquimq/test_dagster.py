"""The resource and the sensors of Dagster, on a real queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from orchestration_queue.errors import UsageError
from orchestration_queue.wires.chasquimq.dagster import (
    ChasquiResource,
    chasqui_dead_letter_sensor,
    chasqui_event_sensor,
)
from orchestration_queue.wires.chasquimq.envelope import Envelope, pack_envelope
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.packing import pack

pytestmark = pytest.mark.dagster


@dg.job
def target() -> None:
    """What sensors request runs of."""


@pytest.fixture
def resource(server: Any, server_url: str) -> Iterator[ChasquiResource]:
    made = ChasquiResource(url=server_url)
    yield made
    made.close()


def tick(sensor: dg.SensorDefinition, resource: ChasquiResource, cursor: str | None) -> Any:
    with dg.build_sensor_context(cursor=cursor, resources={"chasqui": resource}) as context:
        return sensor.evaluate_tick(context)


def happen(server: Any, keys: ChasquiKeys, kind: str, job_id: str, name: str) -> str:
    entry: bytes = server.xadd(keys.events, {"e": kind, "id": job_id, "ts": "1", "n": name, "attempt": "1"})
    return entry.decode()


def test_each_event_asks_for_one_run(server: Any, resource: ChasquiResource, keys: ChasquiKeys) -> None:
    sensor = chasqui_event_sensor(keys.queue, job=target, events=["completed"], job_names=["a"], wait=0.05)
    happen(server, keys, "completed", "old", "a")
    first = tick(sensor, resource, None)
    assert not first.run_requests
    happen(server, keys, "active", "1", "a")
    wanted = happen(server, keys, "completed", "1", "a")
    last = happen(server, keys, "completed", "2", "b")
    second = tick(sensor, resource, first.cursor)
    (request,) = second.run_requests
    assert request.run_key == f"{keys.queue}:{wanted}"
    assert request.tags["orchestration_queue/job_id"] == "1"
    assert second.cursor == last
    assert "no run" in (tick(sensor, resource, second.cursor).skip_message or "")


def test_a_function_decides_what_an_event_asks_for(server: Any, resource: ChasquiResource, keys: ChasquiKeys) -> None:
    sensor = chasqui_event_sensor(
        keys.queue,
        job=target,
        start="0",
        wait=timedelta(milliseconds=50),
        react=lambda event: dg.RunRequest(tags={"of": event.job_name}) if event.job_id == "2" else None,
    )
    for job_id in ("1", "2"):
        happen(server, keys, "completed", job_id, "n")
    (request,) = tick(sensor, resource, None).run_requests
    assert request.tags["of"] == "n"


def test_each_dead_letter_asks_for_one_run(server: Any, resource: ChasquiResource, keys: ChasquiKeys) -> None:
    for job_id, reason in (("a", "unrecoverable"), ("b", "malformed"), ("c", "unrecoverable")):
        envelope = pack_envelope(Envelope(job_id, pack(None), 1))
        server.xadd(keys.dead_letters, {"d": envelope, "n": "nm", "reason": reason})
    sensor = chasqui_dead_letter_sensor(keys.queue, job=target, reasons=["unrecoverable"], limit=2)
    first = tick(sensor, resource, None)
    assert [request.tags["orchestration_queue/job_id"] for request in first.run_requests] == ["a"]
    second = tick(sensor, resource, first.cursor)
    assert [request.tags["orchestration_queue/job_id"] for request in second.run_requests] == ["c"]
    third = tick(sensor, resource, second.cursor)
    assert (third.run_requests, third.cursor) == ([], second.cursor)


def test_an_asset_adds_jobs(server: Any, server_url: str, keys: ChasquiKeys) -> None:
    @dg.asset
    def fed(chasqui: ChasquiResource) -> None:
        chasqui.queue(keys.queue).add("greet", {"to": "ada"})

    assert dg.materialize([fed], resources={"chasqui": ChasquiResource(url=server_url)}).success
    assert server.xlen(keys.stream) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: chasqui_event_sensor("", job=target),
        lambda: chasqui_event_sensor("q", job=target, events="completed"),
        lambda: chasqui_event_sensor("q", job=target, events=[]),
        lambda: chasqui_event_sensor("q", job=target, wait=60),
        lambda: chasqui_event_sensor("q", job=target, limit=0),
        lambda: chasqui_event_sensor("q", job=target, start="then"),
        lambda: chasqui_dead_letter_sensor("q", job=target, interval=0),
        lambda: chasqui_dead_letter_sensor("q", job=target, reasons="x"),
        lambda: chasqui_dead_letter_sensor("q", job=target, name=""),
        lambda: chasqui_dead_letter_sensor("q", job=target, resource_key=""),
        lambda: ChasquiResource(url="ftp://x"),
    ],
)
def test_mistakes_are_refused_at_once(make: Any) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert "\n" not in str(caught.value)
