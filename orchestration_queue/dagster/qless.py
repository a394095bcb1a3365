"""qless's queues in Dagster: a resource, and sensors for messages, failed and stalled jobs."""

from __future__ import annotations

from pydantic import Field

from orchestration_queue.dagster.resources import ClientsResource
from orchestration_queue.dagster.sensors.qless import qless_event_sensor, qless_failure_sensor, qless_stalled_sensor
from orchestration_queue.dialects.qless import QlessClient, QlessEvents

__all__ = ["QlessResource", "qless_event_sensor", "qless_failure_sensor", "qless_stalled_sensor"]


class QlessResource(ClientsResource):
    """Clients of the qless queues on one server, closed when the step or tick ends.

    Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores and shows the variable's name only.
    """

    worker: str | None = Field(
        default=None, description="The worker name for taking jobs; default the host's name and the process's id."
    )

    def client(self) -> QlessClient:
        """Return a client of all queues.

        Raises:
            UsageError: The worker's name is empty.
        """
        return self._keep(QlessClient(url=self.url, worker=self.worker))

    def events(self, *channels: str) -> QlessEvents:
        """Return a reader of channels, by default of the log.

        Raises:
            UsageError: A channel is not a string.
        """
        return self._keep(QlessEvents(*channels, url=self.url))
