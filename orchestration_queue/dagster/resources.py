"""The queue as a Dagster resource."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import Field, PrivateAttr

from orchestration_queue.client import FlowProducer, Queue, QueueEvents
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection

__all__ = ["QueueResource"]


class QueueResource(dg.ConfigurableResource["QueueResource"]):
    """Clients of one server, for assets, ops and sensors.

    Nothing connects before a client is asked for; all clients of a step or tick share one connection, which is
    closed when the step or tick ends. Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores
    and shows the variable's name only.

    Examples:
        >>> import dagster as dg
        >>> defs = dg.Definitions(resources={"queue": QueueResource(url=dg.EnvVar("OQ_URL"))})
    """

    url: str | None = Field(
        default=None,
        repr=False,
        description="Where the server is; default the environment's OQ_URL, else an embedded server in `.oq`.",
    )
    prefix: str = Field(default=DEFAULT_PREFIX, description="What the server's keys begin with.")

    _connection: Connection | None = PrivateAttr(default=None)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[QueueResource]:  # noqa: ARG002  Dagster's
        """Lend the resource to one step or tick, and hang up afterwards."""
        try:
            yield self
        finally:
            self.close()

    @property
    def connection(self) -> Connection:
        """The shared connection, opened when first asked for.

        Raises:
            TransportError: The server cannot be reached.
        """
        if self._connection is None:
            self._connection = Connection.open(self.url)
        return self._connection

    def close(self) -> None:
        """Hang up. The next client connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def queue(self, name: str) -> Queue:
        """A client of one queue.

        Raises:
            InvalidNameError: The wire cannot carry the queue's name.
            TransportError: The server cannot be reached.
        """
        return Queue(name, connection=self.connection, prefix=self.prefix)

    def events(self, name: str) -> QueueEvents:
        """What happens in one queue, as it happens.

        Raises:
            InvalidNameError: The wire cannot carry the queue's name.
            TransportError: The server cannot be reached.
        """
        return QueueEvents(name, connection=self.connection, prefix=self.prefix)

    def flow_producer(self) -> FlowProducer:
        """A client that submits flows.

        Raises:
            TransportError: The server cannot be reached.
        """
        return FlowProducer(connection=self.connection, prefix=self.prefix)
