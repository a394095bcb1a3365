"""A code location for a real daemon: a sensor that observes an asset for some events and requests runs for others."""

from __future__ import annotations

import os
from datetime import timedelta

import dagster as dg

from orchestration_queue.dagster import QueueEvent, QueueResource, queue_event_sensor
from orchestration_queue.dagster.sensors import Answer
from tests.dagster.ticks import target

QUEUES = os.environ.get("TEST_QUEUES", "unset").split(",")


@queue_event_sensor(
    queue=QUEUES,
    job=target,
    events=["completed", "failed"],
    start="oldest",
    wait=timedelta(seconds=10),
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def heard(event: QueueEvent, _queue: QueueResource) -> Answer:
    """An observation for each completed job, a run for each failed one."""
    if event.type == "completed":
        return dg.AssetObservation("table")
    return dg.RunRequest(tags={"event_ms": event.id.partition("-")[0], "job": event.job_id})


defs = dg.Definitions(jobs=[target], sensors=[heard], resources={"queue": QueueResource(url=dg.EnvVar("OQ_URL"))})
