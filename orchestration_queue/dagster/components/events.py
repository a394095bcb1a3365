"""A component for sensors on a queue's events."""

# No `from __future__ import annotations` here: Dagster looks at the types of the fields, and would find texts.

from datetime import timedelta
from typing import Any, ClassVar, Literal

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.scaffolding import QueueScaffolder
from orchestration_queue.dagster.sensors import queue_event_sensor, request_run

__all__ = ["QueueEventSensorComponent"]


class _EventSensorScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {
        "name": "{name}",
        "queue": "{queue}",
        "events": ["completed"],
        "target": "key:report",
    }


@dg.scaffold_with(_EventSensorScaffolder)
class QueueEventSensorComponent(dg.Component, dg.Model, dg.Resolvable):
    """A sensor that requests a run for each event of a queue, within a second or so."""

    name: str = Field(description="The sensor's name.")
    queue: str = Field(description="The queue to listen to.")
    target: str = Field(description="What its runs make: a selection of assets, such as 'key:report' or 'group:daily'.")
    events: list[str] = Field(default_factory=lambda: ["completed"], description="The types of events to react to.")
    start: Literal["now", "oldest"] = Field(default="now", description="Where to begin without a cursor.")
    wait_seconds: float = Field(default=20.0, gt=0, le=50, description="How long one tick listens.")
    limit: int = Field(default=500, description="Most events that one tick reads at once.")
    running: bool = Field(default=False, description="Whether it runs without being switched on.")
    resource_key: str = Field(default="queue", description="The QueueResource among the definitions' resources.")
    description: str | None = Field(default=None, description="What the UI shows.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """The sensor."""
        status = dg.DefaultSensorStatus.RUNNING if self.running else dg.DefaultSensorStatus.STOPPED
        sensor = queue_event_sensor(
            request_run,
            name=self.name,
            queue=self.queue,
            job=dg.AssetSelection.from_string(self.target),
            events=self.events,
            start=self.start,
            wait=timedelta(seconds=self.wait_seconds),
            limit=self.limit,
            resource_key=self.resource_key,
            default_status=status,
            description=self.description,
        )
        return dg.Definitions(sensors=[sensor])
