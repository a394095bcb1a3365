"""A run for each flow that has ended, by its name and by how it ended."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest

from orchestration_queue import Dag, JobOptions, Node, Retention
from orchestration_queue.dagster import FlowResource, QueueResource, flow_sensor
from orchestration_queue.errors import InvalidNameError, InvalidOptionError
from orchestration_queue.testing import drain
from tests.dagster.ticks import SHORT, target, tick

pytestmark = pytest.mark.dagster


@pytest.fixture
def flows(server_url: str, resource: QueueResource) -> FlowResource:
    """Submits flows; disconnects with the other resource."""
    made = FlowResource(url=server_url)
    made._connection = resource.connection
    return made


def made(queue: str, flow: str | None = "load", **options: Any) -> dg.SensorDefinition:
    return flow_sensor(flow, queue=queue, **{"job": target, "start": "oldest", "wait": SHORT, **options})


def submit(flows: FlowResource, queue: str, name: str, flow_id: str, *, bad: bool = False) -> None:
    last = Node("last", data={"bad": bad}, deps=["first"])
    flows.submit(Dag(name, [Node("first"), last], queue), flow_id=flow_id)


def work(resource: QueueResource, queue: str) -> None:
    async def run(job: Any) -> None:
        if isinstance(job.data, dict) and job.data.get("bad"):
            raise ValueError("bad")

    drain(resource.queue(queue), run, raise_failures=False, timeout=60)


def requested(result: Any) -> list[tuple[str, str]]:
    return [
        (request.tags["orchestration_queue/flow_id"], request.tags["orchestration_queue/flow_state"])
        for request in result.run_requests
    ]


def test_flows_fire_by_name_and_end_each_once(resource: QueueResource, flows: FlowResource, queue_name: str) -> None:
    submit(flows, queue_name, "load", "good")
    submit(flows, queue_name, "load", "poor", bad=True)
    submit(flows, queue_name, "load-other", "other")
    sensor = made(queue_name)
    early = tick(sensor, resource, None)
    assert not early.run_requests
    work(resource, queue_name)
    result = tick(sensor, resource, early.cursor)
    assert sorted(requested(result)) == [("good", "completed"), ("poor", "failed")]
    assert sorted(request.run_key or "" for request in result.run_requests) == ["good:completed", "poor:failed"]
    assert not tick(sensor, resource, result.cursor).run_requests
    assert requested(tick(made(queue_name, on=["failed"]), resource, None)) == [("poor", "failed")]
    assert len(requested(tick(made(queue_name, None), resource, None))) == 3


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_ends_of_flows_whose_nodes_are_not_kept(
    resource: QueueResource, flows: FlowResource, queue_name: str, kept: bool
) -> None:
    retention = None if kept else Retention(count=0)
    options = JobOptions(remove_on_complete=retention, remove_on_fail=retention)
    for flow_id, bad in (("good", False), ("poor", True)):
        nodes = [Node("first", options=options), Node("last", data={"bad": bad}, deps=["first"], options=options)]
        flows.submit(Dag("load", nodes, queue_name), flow_id=flow_id)
    work(resource, queue_name)
    assert sorted(requested(tick(made(queue_name), resource, None))) == [("good", "completed"), ("poor", "failed")]


def test_a_flow_that_has_begun_to_end_is_kept_in_mind(
    resource: QueueResource, flows: FlowResource, queue_name: str
) -> None:
    away = f"{queue_name}-away"
    nodes = [Node("first"), Node("last", queue=away, deps=["first"])]
    flows.submit(Dag("load", nodes, queue_name), flow_id="far")
    work(resource, queue_name)
    sensor = made(queue_name, node_queues=[away])
    half = tick(sensor, resource, None)
    assert json.loads(half.cursor or "")["open"] == ["far"]
    work(resource, away)
    done = tick(sensor, resource, half.cursor)
    assert requested(done) == [("far", "completed")]
    assert json.loads(done.cursor or "")["open"] == []
    assert set(json.loads(done.cursor or "")["heard"]) == {queue_name, away}


def test_what_is_requested_can_be_decided(resource: QueueResource, flows: FlowResource, queue_name: str) -> None:
    submit(flows, queue_name, "load", "good")
    submit(flows, queue_name, "load", "left-out")
    work(resource, queue_name)
    sensor = made(
        queue_name,
        react=lambda flow, _: dg.RunRequest(run_key="mine", tags={"n": str(flow.nodes)}) if flow.id == "good" else None,
    )
    (request,) = tick(sensor, resource, None).run_requests
    assert (request.run_key, request.tags["n"]) == ("mine", "2")


def test_a_flow_that_is_removed_is_forgotten(resource: QueueResource, flows: FlowResource, queue_name: str) -> None:
    cursor = json.dumps({"heard": {queue_name: "oldest"}, "open": ["gone"]})
    result = tick(made(queue_name), resource, cursor)
    assert json.loads(result.cursor or "")["open"] == []


@pytest.mark.parametrize("on", [[], ["done"], ["running"]])
def test_ends_that_no_flow_has_are_refused(on: Any) -> None:
    with pytest.raises(InvalidOptionError, match="`on` must list outcomes of flows"):
        made("q", on=on)
    with pytest.raises(InvalidOptionError, match="`on` must be a list of str, got 'failed'"):
        made("q", on="failed")


def test_bad_queues_and_options_are_refused() -> None:
    with pytest.raises(InvalidNameError):
        made("q", node_queues=["a:b"])
    with pytest.raises(InvalidOptionError, match="limit"):
        made("q", limit=0)


def test_it_has_a_name_of_queue_and_flow() -> None:
    assert made("my-queue", "a.b").name == "flows_of_my_queue_a_b"
    assert made("q", name="mine").name == "mine"
