"""Components for qless's queues: a resource, and sensors for messages, failed and stalled jobs."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.base import TARGET, QueueScaffolder, SensorComponent, parse_target, words
from orchestration_queue.dagster.sensors.options import SensorOptions
from orchestration_queue.wires.qless.dagster import (
    QlessResource,
    qless_event_sensor,
    qless_failure_sensor,
    qless_stalled_sensor,
)

__all__ = [
    "QlessEventSensorComponent",
    "QlessFailureSensorComponent",
    "QlessResourceComponent",
    "QlessStalledSensorComponent",
]

_TARGET = Field(description=TARGET)
_KEY = Field(default="qless", description="The QlessResource among the definitions' resources.")
_INTERVAL = Field(default=30.0, description="The time between two ticks, at least 1.")


class QlessResourceComponent(dg.Component, dg.Model, dg.Resolvable):
    """The server of qless's queues. Its URL comes from the environment, never from the file."""

    resource_key: str = Field(default="qless", description="The key by which other components refer to it.")
    url_variable: str = Field(default="OQ_URL", description="The environment variable with the server's URL.")
    worker: str | None = Field(default=None, description="The worker name for taking jobs; default host and pid.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the resource."""
        resource = QlessResource(url=dg.EnvVar(self.url_variable), worker=self.worker)
        return dg.Definitions(resources={self.resource_key: resource})


class _QlessEventScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {
        "name": "{name}",
        "queues": ["{queue}"],
        "events": ["completed"],
        "target": "key:report",
    }


@dg.scaffold_with(_QlessEventScaffolder)
class QlessEventSensorComponent(SensorComponent):
    """A sensor that requests a run for each message of qless's log."""

    events: Annotated[Sequence[str], words("events")] = Field(
        default=("completed",), description="The events to react to."
    )
    queues: Annotated[Sequence[str], words("queues")] = Field(
        default=(), description="React to events of these queues only."
    )
    wait_seconds: float = Field(default=20.0, description="How long one tick listens, at most 50.")
    limit: int = Field(default=500, description="How many messages one tick reads.")
    target: str = _TARGET
    resource_key: str = _KEY

    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Build the sensor."""
        return qless_event_sensor(
            job=parse_target(self.target),
            name=self.name,
            events=self.events,
            queues=self.queues,
            react=self.react,
            wait=self.wait_seconds,
            limit=self.limit,
            **options,
        )


class _QlessFailureScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {"name": "{name}", "groups": ["{queue}-ValueError"], "target": "key:report"}


@dg.scaffold_with(_QlessFailureScaffolder)
class QlessFailureSensorComponent(SensorComponent):
    """A sensor that requests a run for each job of qless's queues that failed."""

    groups: Annotated[Sequence[str], words("groups")] = Field(
        default=(), description="React to failures of these groups only."
    )
    limit: int = Field(default=200, description="How many failures one tick handles.")
    interval_seconds: float = _INTERVAL
    target: str = _TARGET
    resource_key: str = _KEY

    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Build the sensor."""
        return qless_failure_sensor(
            job=parse_target(self.target),
            name=self.name,
            groups=self.groups,
            react=self.react,
            limit=self.limit,
            interval=self.interval_seconds,
            **options,
        )


class _QlessStalledScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {"name": "{name}", "queue": "{queue}", "target": "key:report"}


@dg.scaffold_with(_QlessStalledScaffolder)
class QlessStalledSensorComponent(SensorComponent):
    """A sensor that requests a run for each job of a qless queue whose lock has expired."""

    queue: str = Field(description="The queue.")
    limit: int = Field(default=200, description="How many stalled jobs one tick reads.")
    interval_seconds: float = _INTERVAL
    target: str = _TARGET
    resource_key: str = _KEY

    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Build the sensor."""
        return qless_stalled_sensor(
            self.queue,
            job=parse_target(self.target),
            name=self.name,
            react=self.react,
            limit=self.limit,
            interval=self.interval_seconds,
            **options,
        )
