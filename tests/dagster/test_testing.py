"""What users' tests get: a real instance, the queue as a resource, ticks of sensors."""

from __future__ import annotations

import dagster as dg
import pytest

from orchestration_queue import Queue
from orchestration_queue.dagster import QueueResource, queue_event_sensor, request_run
from orchestration_queue.dagster.testing import (
    evaluate_sensor,
    oq_dagster_instance,  # noqa: F401  a fixture
    oq_resource,  # noqa: F401  a fixture
    queue_resource,
)
from tests.dagster.ticks import SHORT, target

pytestmark = pytest.mark.dagster


def test_a_sensor_is_tried_against_a_real_queue(
    oq_queue: Queue,
    oq_resource: QueueResource,  # noqa: F811
    oq_dagster_instance: dg.DagsterInstance,  # noqa: F811
) -> None:
    sensor = queue_event_sensor(
        request_run, name="heard", queue=oq_queue.name, job=target, events=["added"], start="oldest", wait=SHORT
    )
    oq_queue.add("upload", {})
    result = evaluate_sensor(sensor, {"queue": oq_resource}, instance=oq_dagster_instance)
    (request,) = result.run_requests
    assert request.tags["orchestration_queue/job_id"] == "1"
    assert result.skip_message is None
    again = evaluate_sensor(sensor, {"queue": oq_resource}, cursor=result.cursor)
    assert (again.run_requests, again.cursor) == ((), result.cursor)
    assert "Read 0 events of queue" in (again.skip_message or "")
    assert target.execute_in_process(instance=oq_dagster_instance).success
    assert oq_dagster_instance.get_runs_count() == 1


def test_a_resource_outside_of_a_run_hangs_up(server_url: str) -> None:
    with queue_resource(server_url) as resource:
        assert not resource.connection.is_closed
    assert resource._connection is None
