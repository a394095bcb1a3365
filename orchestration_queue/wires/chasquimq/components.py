"""Components for ChasquiMQ's queues: a resource, and sensors for events and dead letters."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.
# The parts below are imported late: they need the extra `msgpack`, but `dg` always imports this module.

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.base import (
    TARGET,
    EventSensorScaffolder,
    QueueScaffolder,
    SensorComponent,
    parse_target,
    words,
)
from orchestration_queue.dagster.sensors.options import SensorOptions

__all__ = [
    "ChasquiDeadLetterSensorComponent",
    "ChasquiEventSensorComponent",
    "ChasquiResourceComponent",
]

_TARGET = Field(description=TARGET)
_KEY = Field(default="chasqui", description="The ChasquiResource among the definitions' resources.")


class ChasquiResourceComponent(dg.Component, dg.Model, dg.Resolvable):
    """The server of ChasquiMQ's queues. Its URL comes from the environment, never from the file."""

    resource_key: str = Field(default="chasqui", description="The key by which other components refer to it.")
    url_variable: str = Field(default="OQ_URL", description="The environment variable with the server's URL.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the resource."""
        from orchestration_queue.wires.chasquimq.dagster import ChasquiResource

        return dg.Definitions(resources={self.resource_key: ChasquiResource(url=dg.EnvVar(self.url_variable))})


@dg.scaffold_with(EventSensorScaffolder)
class ChasquiEventSensorComponent(SensorComponent):
    """A sensor that requests a run for each event of a ChasquiMQ queue; see ``chasqui_event_sensor``."""

    queue: str = Field(description="The queue to listen to.")
    events: Annotated[Sequence[str], words("events")] = Field(
        default=("completed",), description="The types of events to react to."
    )
    job_names: Annotated[Sequence[str], words("job_names")] = Field(
        default=(), description="React to events of jobs with these names only."
    )
    start: str | int = Field(  # Dagster's templates make a number of "0"
        default="$", description="Where to start without a cursor: '$' for now, 0 for all events, or an event's id."
    )
    wait_seconds: float = Field(default=20.0, description="How long one tick listens, at most 50.")
    limit: int = Field(default=500, description="How many events one tick reads.")
    target: str = _TARGET
    resource_key: str = _KEY

    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Build the sensor."""
        from orchestration_queue.wires.chasquimq.dagster import chasqui_event_sensor

        return chasqui_event_sensor(
            self.queue,
            job=parse_target(self.target),
            name=self.name,
            events=self.events,
            job_names=self.job_names,
            react=self.react,
            start=str(self.start),
            wait=self.wait_seconds,
            limit=self.limit,
            **options,
        )


class _ChasquiDeadLetterScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {"name": "{name}", "queue": "{queue}", "target": "key:report"}


@dg.scaffold_with(_ChasquiDeadLetterScaffolder)
class ChasquiDeadLetterSensorComponent(SensorComponent):
    """A sensor that requests a run for each job of a ChasquiMQ queue that failed for good."""

    queue: str = Field(description="The queue in which jobs fail.")
    reasons: Annotated[Sequence[str], words("reasons")] = Field(
        default=(), description="React to dead letters of these reasons only."
    )
    limit: int = Field(default=200, description="How many dead letters one tick reads.")
    interval_seconds: float = Field(default=30.0, description="The time between two ticks, at least 1.")
    target: str = _TARGET
    resource_key: str = _KEY

    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Build the sensor."""
        from orchestration_queue.wires.chasquimq.dagster import chasqui_dead_letter_sensor

        return chasqui_dead_letter_sensor(
            self.queue,
            job=parse_target(self.target),
            name=self.name,
            reasons=self.reasons,
            react=self.react,
            limit=self.limit,
            interval=self.interval_seconds,
            **options,
        )
