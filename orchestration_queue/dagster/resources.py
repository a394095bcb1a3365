"""The queue's server as Dagster resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar, cast

import dagster as dg
from pydantic import Field, PrivateAttr, ValidationError, field_validator

from orchestration_queue.client import Flow, FlowProducer, Flows, JobSchedulers, Queue, QueueEvents
from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.flows import CARRIERS, Carrier, Dag
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.server import Connection, parse_url

__all__ = ["CARRIER", "ClientsResource", "FlowResource", "JobSchedulerResource", "QueueResource", "ServerResource"]

CARRIER = "How a flow is sent to the server: 'transaction' or 'packed'; default as the graph needs."


class Closable(Protocol):
    """A client that can be closed."""

    def close(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=Closable)


class UrlResource(dg.ConfigurableResource["UrlResource"]):
    """Base of all resources: a server's URL, and connections that close when the step or tick ends.

    Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores and shows the variable's name only.
    """

    url: str | None = Field(
        default=None,
        repr=False,
        description="The server's URL; default the environment's OQ_URL, else an embedded server in `.oq`.",
    )

    @field_validator("url", mode="before")  # afterwards an EnvVar is plain text
    @classmethod
    def _check_url(cls, value: object) -> object:
        if isinstance(value, str) and not isinstance(value, dg.EnvVar):
            parse_url(value)
        return value

    def __init__(self, **data: Any) -> None:
        """Check the fields, and report the first mistake in one sentence.

        Raises:
            InvalidOptionError: A field is unknown, or its value is invalid.
        """
        name, known = type(self).__name__, type(self).model_fields
        for given in data.keys() - known.keys():
            raise InvalidOptionError(f"Unknown field {given!r} of {name}; use {', '.join(known)}.")
        try:
            super().__init__(**data)
        except ValidationError as error:
            problem = error.errors()[0]
            if problem["type"] == "value_error":
                cause = problem["ctx"]["error"]
                raise (cause if isinstance(cause, UsageError) else InvalidOptionError(f"{cause}.")) from None
            where = ".".join(map(str, problem["loc"]))
            raise InvalidOptionError(f"`{where}` of {name}: {problem['msg']}, got {problem['input']!r}.") from None

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Self]:  # noqa: ARG002  Dagster's
        """Provide the resource to one step or tick, and disconnect afterwards."""
        try:
            yield self
        finally:
            self.close()

    def close(self) -> None:
        """Close all connections."""
        raise NotImplementedError


class ClientsResource(UrlResource):
    """A resource whose clients each open a connection, which closes when the step or tick ends."""

    _clients: list[Closable] = PrivateAttr(default_factory=list)

    def _keep(self, client: C) -> C:
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close all clients."""
        while self._clients:
            self._clients.pop().close()


class ServerResource(UrlResource):
    """Base of the resources of one server: its URL, and one connection for each step or tick.

    The first client connects; all clients of a step or tick share one connection, which closes when the step or tick
    ends. A forked process opens its own sockets. Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then
    stores and shows the variable's name only.
    """

    prefix: str = Field(default=DEFAULT_PREFIX, description="Prefix of all keys.")

    _connection: Connection | None = PrivateAttr(default=None)

    @field_validator("prefix", mode="before")
    @classmethod
    def _check_prefix(cls, value: object) -> object:
        if isinstance(value, str) and not isinstance(value, dg.EnvVar):
            QueueKeys("any", value)
        return value

    @property
    def connection(self) -> Connection:
        """The shared connection, opened on first use.

        Raises:
            TransportError: The server cannot be reached.
        """
        if self._connection is None:
            self._connection = Connection.open(self.url)
        return self._connection

    def _check_queue(self, name: str) -> str:
        """Refuse a name before anything connects."""
        return QueueKeys(name, self.prefix).queue

    def close(self) -> None:
        """Close the connection. The next client opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SubmittingResource(ServerResource):
    """A resource that submits flows with a carrier."""

    carrier: str | None = Field(default=None, description=CARRIER)  # Dagster's config knows no Literal

    @field_validator("carrier")
    @classmethod
    def _check_carrier(cls, carrier: str | None) -> str | None:
        if carrier is not None and not isinstance(carrier, dg.EnvVar) and carrier not in CARRIERS:
            raise ValueError(f"`carrier` must be 'transaction' or 'packed', got {carrier!r}; pass one, or remove it")
        return carrier

    def _flow_producer(self) -> FlowProducer:
        carrier = cast("Carrier | None", self.carrier)
        return FlowProducer(connection=self.connection, prefix=self.prefix, carrier=carrier)


class QueueResource(SubmittingResource):
    """Clients of one server's queues, for assets, ops, sensors and schedules; see :class:`ServerResource`.

    Examples:
        >>> import dagster as dg
        >>> defs = dg.Definitions(resources={"queue": QueueResource(url=dg.EnvVar("OQ_URL"))})
    """

    def queue(self, name: str) -> Queue:
        """Open a client of one queue.

        Raises:
            InvalidNameError: The queue's name is invalid.
            TransportError: The server is unreachable.
        """
        return Queue(self._check_queue(name), connection=self.connection, prefix=self.prefix)

    def events(self, name: str) -> QueueEvents:
        """Open a reader of one queue's events.

        Raises:
            InvalidNameError: The queue's name is invalid.
            TransportError: The server is unreachable.
        """
        return QueueEvents(self._check_queue(name), connection=self.connection, prefix=self.prefix)

    def flow_producer(self) -> FlowProducer:
        """Open a client that submits flows.

        Raises:
            TransportError: The server is unreachable.
        """
        return self._flow_producer()


class FlowResource(SubmittingResource):
    """Flows on one server: submit, read and control them; see :class:`ServerResource`.

    Examples:
        >>> import dagster as dg
        >>> defs = dg.Definitions(resources={"flows": FlowResource(url=dg.EnvVar("OQ_URL"))})
    """

    def submit(self, dag: Dag, *, flow_id: str | None = None) -> Flow:
        """Submit a flow. None of its jobs starts before all of them are stored.

        Args:
            dag: The graph.
            flow_id: Its id, such as the run's. Submitting again with the same id runs nothing twice. Default: a new
                one.

        Raises:
            FlowError: The graph is invalid, or the id belongs to another flow.
            TransportError: The server is unreachable.
        """
        return self._flow_producer().submit(dag, flow_id=flow_id)

    def of(self, queue: str) -> Flows:
        """Return the flows whose record is in a queue: ``get`` one by its id, or ``list`` them.

        Raises:
            InvalidNameError: The queue's name is invalid.
            TransportError: The server is unreachable.
        """
        return Queue(self._check_queue(queue), connection=self.connection, prefix=self.prefix).flows


class JobSchedulerResource(ServerResource):
    """Queues' repeatable jobs on one server; see :class:`ServerResource`.

    Examples:
        >>> import dagster as dg
        >>> defs = dg.Definitions(resources={"schedulers": JobSchedulerResource(url=dg.EnvVar("OQ_URL"))})
    """

    def of(self, queue: str) -> JobSchedulers:
        """Return the schedulers of a queue: set, read, pause, run now, remove.

        Raises:
            InvalidNameError: The queue's name is invalid.
            TransportError: The server is unreachable.
        """
        return Queue(self._check_queue(queue), connection=self.connection, prefix=self.prefix).schedulers
