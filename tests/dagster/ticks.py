"""Ticks of sensors, as the daemon's code server makes them; and events, as the server's functions write them."""

from __future__ import annotations

import logging
from datetime import timedelta

import dagster as dg
import redis
from dagster._core.definitions.sensor_definition import SensorExecutionData

from orchestration_queue.dagster import QueueResource

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


class Lines(logging.Handler):
    """Keeps what a tick logs; Dagster's logger of a tick stands outside the tree that pytest watches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


def tick(
    sensor: dg.SensorDefinition, resource: QueueResource, cursor: str | None, lines: Lines | None = None
) -> SensorExecutionData:
    with dg.build_sensor_context(cursor=cursor, resources={"queue": resource}) as context:
        context.log.addHandler(lines or Lines())
        return sensor.evaluate_tick(context)
