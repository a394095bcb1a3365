"""Airflow's connection to the server of queues, and the hook that opens it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.sdk.bases.hook import BaseHook

from orchestration_queue.client import FlowProducer, Queue
from orchestration_queue.errors import OrchestrationQueueError, UsageError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.server import Connection, ServerUrl, parse_url

if TYPE_CHECKING:
    from airflow.sdk import Connection as AirflowConnection

__all__ = ["CONNECTION_TYPE", "DEFAULT_CONNECTION", "QueueHook", "QueueServer"]

CONNECTION_TYPE = "orchestration_queue"
DEFAULT_CONNECTION = "orchestration_queue_default"
_DEFAULT_SCHEME = "redis"
_OURS = ("scheme", "prefix", "console_url")
"""Fields of a connection's extra that are not options of the server's URL."""


@dataclass(frozen=True, slots=True)
class QueueServer:
    """The server that an Airflow connection names.

    Attributes:
        url: The server's URL. Its ``repr`` has no password.
        prefix: First part of every key.
        console: The URL of the console; empty without one.
    """

    url: ServerUrl
    prefix: str = DEFAULT_PREFIX
    console: str = ""

    @classmethod
    def of(cls, connection: AirflowConnection) -> QueueServer:
        """Read a connection: a host and port or a URL, login, password, database, and URL options in its extra.

        Raises:
            UsageError: The connection has another type, or its fields are no address of a server.
        """
        name = f"Airflow's connection {connection.conn_id!r}"
        if connection.conn_type != CONNECTION_TYPE:
            raise UsageError(
                f"{name} has the type {connection.conn_type!r}, but queues need {CONNECTION_TYPE!r}; change its type, "
                "or pass the id of another connection."
            )
        extra = _read_extra(name, connection.extra)
        if not connection.host:
            raise UsageError(f"{name} has no host; set it to a host name, or to a URL such as redis+cluster://a,b.")
        prefix = str(extra.get("prefix") or DEFAULT_PREFIX)
        console = str(extra.get("console_url") or os.environ.get("OQ_CONSOLE_URL", ""))
        try:
            QueueKeys("q", prefix)
            return cls(parse_url(_build_url(connection, extra)), prefix, console.rstrip("/"))
        except UsageError as error:
            raise type(error)(f"{name} cannot be used: {error}") from None

    def console_page(self, queue: str, kind: str, name: str) -> str:
        """Return the URL of a page of the console, such as that of a job; empty without a console."""
        if not self.console:
            return ""
        return f"{self.console}/ui/queues/{quote(queue, safe='')}/{kind}/{quote(name, safe='')}"


def _read_extra(name: str, stored: str | None) -> dict[str, Any]:
    try:
        extra = json.loads(stored or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise UsageError(f'{name} has an extra that is no JSON object; write one such as {{"timeout": 10}}.')
    return extra


def _build_url(connection: AirflowConnection, extra: dict[str, Any]) -> str:
    host = str(connection.host)
    if "://" not in host:
        port = f":{connection.port}" if connection.port else ""
        host = f"{extra.get('scheme') or _DEFAULT_SCHEME}://{host}{port}"
    options = {"username": connection.login, "password": connection.password, "db": connection.schema}
    options |= {name: value for name, value in extra.items() if name not in _OURS}
    given = {name: _write_option(value) for name, value in options.items() if value not in (None, "")}
    return f"{host}{'&' if '?' in host else '?'}{urlencode(given)}" if given else host


def _write_option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class QueueHook(BaseHook):
    """Opens queues on the server that an Airflow connection names.

    Args:
        queue_conn_id: The connection's id.

    Example:
        ::

            with QueueHook().queue("data") as queue:
                queue.add("extract", {"day": "2013-01-01"})
    """

    conn_name_attr = "queue_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = CONNECTION_TYPE
    hook_name = "orchestration_queue"

    def __init__(self, queue_conn_id: str = DEFAULT_CONNECTION) -> None:
        super().__init__()
        self.queue_conn_id = queue_conn_id
        self._server: QueueServer | None = None

    @property
    def server(self) -> QueueServer:
        """The server of the connection.

        Raises:
            UsageError: The connection has another type, or its fields are no address of a server.
        """
        if self._server is None:
            self._server = QueueServer.of(self.get_connection(self.queue_conn_id))
        return self._server

    async def aread_server(self) -> QueueServer:
        """Return the server of the connection, for triggers; raise what :attr:`server` does."""
        if self._server is None:
            self._server = QueueServer.of(await self.aget_connection(self.queue_conn_id))
        return self._server

    def get_conn(self) -> Connection:
        """Return a new connection to the server, to be closed by the caller. It connects when first used."""
        return Connection(self.server.url)

    @contextmanager
    def queue(self, name: str) -> Iterator[Queue]:
        """Open a queue for the duration of the block.

        Raises:
            InvalidNameError: The queue's name is invalid.
        """
        with self.get_conn() as connection:
            yield Queue(name, connection=connection, prefix=self.server.prefix)

    @contextmanager
    def flow_producer(self) -> Iterator[FlowProducer]:
        """Open a flow producer for the duration of the block."""
        with self.get_conn() as connection:
            yield FlowProducer(connection=connection, prefix=self.server.prefix)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the server can be reached and used, and what it answered."""
        try:
            with Connection.open(self.server.url):
                return True, f"Connected to {self.server.url}."
        except OrchestrationQueueError as error:
            return False, str(error)
