"""ChasquiMQ's queues in Dagster: a resource, and sensors for their events and dead letters."""

from __future__ import annotations

from orchestration_queue.dagster.resources import ClientsResource
from orchestration_queue.dagster.sensors.chasquimq import chasqui_dead_letter_sensor, chasqui_event_sensor
from orchestration_queue.dialects.chasquimq import ChasquiEvents, ChasquiQueue

__all__ = ["ChasquiResource", "chasqui_dead_letter_sensor", "chasqui_event_sensor"]


class ChasquiResource(ClientsResource):
    """Clients of ChasquiMQ's queues on one server, closed when the step or tick ends.

    Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores and shows the variable's name only.
    """

    def queue(self, name: str) -> ChasquiQueue:
        """Return a client of one queue.

        Raises:
            InvalidNameError: The name is empty.
        """
        return self._keep(ChasquiQueue(name, url=self.url))

    def events(self, name: str, after: str = "$") -> ChasquiEvents:
        """Return a reader of one queue's events after an id.

        Raises:
            UsageError: The name is empty, or ``after`` is not an event id.
        """
        return self._keep(ChasquiEvents(name, url=self.url, after=after))
