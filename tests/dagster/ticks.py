"""Ticks of sensors, as the daemon's code server makes them; and events, as the server's functions write them."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg
import redis

from orchestration_queue.dagster import QueueResource
from orchestration_queue.dagster.testing import SensorTick, evaluate_sensor

SHORT = timedelta(seconds=0.2)


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job
def target() -> None:
    """What the sensors request."""
    nothing()


def happened(raw: redis.Redis, queue: str, event: str, job_id: str) -> str:
    """Put an event into the stream, as the server's functions do."""
    added = raw.xadd(f"glide:{{{queue}}}:events", {"event": event, "jobId": job_id})
    assert isinstance(added, str)
    return added


def tick(sensor: dg.SensorDefinition, resource: QueueResource, cursor: str | None) -> SensorTick:
    """One tick of a sensor whose only resource is the queue."""
    return evaluate_sensor(sensor, {"queue": resource}, cursor=cursor)
