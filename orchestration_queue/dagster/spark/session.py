"""A Spark session in the body of an asset: one for each step, on a running Connect server."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Self, TypeAlias

import dagster as dg
from pydantic import Field, PrivateAttr

from orchestration_queue.dagster._compat import StepExecutionContext, StepKey, running_step, step_key_of
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.spark.connect.server import ConnectServer, SessionLease
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.runtime import server_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orchestration_queue.spark.connect.session import SparkConnection

__all__ = ["SparkSessionResource"]

_NAMESPACE = uuid.UUID("0b5c1b2e-6c0b-4a0b-8a3d-6a5f0a7f2f0e")
"""Namespace of the sessions' ids. Never change it: an attempt must find the session of the previous one."""


class SparkSessionResource(dg.ConfigurableResource["SparkSessionResource"]):
    """A Spark session for each step, on a Spark Connect server.

    It connects when a step first uses :attr:`session`. Each step has its own session, also in a shared process, so
    views and properties of other steps are invisible. When the step's process ends for any reason, or the run that
    executes its steps in one process, their sessions end with everything that runs in them. If an attempt is killed,
    the next one ends its session.

    Without an address, it uses a server on this machine, shared with all workers and programs that request an equal
    one, and started by the first of them (see :class:`~orchestration_queue.spark.ConnectServer`).

    Examples:
        >>> import dagster as dg
        >>> @dg.asset
        ... def rows(spark: SparkSessionResource) -> int:
        ...     return spark.session.read.parquet("/data/flights").count()
        >>> defs = dg.Definitions([rows], resources={"spark": SparkSessionResource(memory="2g")})
    """

    url: str | None = Field(
        default=None,
        repr=False,
        description="A remote server, sc://host:15002; default SPARK_REMOTE, else a server on this machine.",
    )
    master: str = Field(default="local[*]", description="The master of this machine's server.")
    memory: str = Field(default="1g", description="The heap of this machine's server.")
    conf: dict[str, str] = Field(default_factory=dict, description="Properties of each session.")

    _held: dict[_Name, _Session] = PrivateAttr(default_factory=dict)

    @contextlib.contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Self]:  # noqa: ARG002  Dagster's
        """Yield the resource to a step, or to the steps of a run in one process, and end their sessions afterwards."""
        try:
            yield self
        finally:
            self.close()

    @property
    def session(self) -> SparkSession:
        """The session of the running step; outside of a step, one shared session.

        Raises:
            SparkFailedError: The server does not start or answer.
            UnrecoverableError: Spark rejects a property.
            InvalidOptionError: The address is invalid, or it is combined with options of a server on this machine.
        """
        return self.session_of(running_step())

    def session_of(self, step: StepExecutionContext | None) -> SparkSession:
        """Return the session of a step, for code outside its body, such as an IO manager."""
        name = (self._server(), id(self) if step is None else step_key_of(step))
        with _lock:
            if name not in self._held:
                if name not in _open:
                    _open[name] = _Session.open(name, self.conf)
                self._held[name] = _open[name]
                self._held[name].users += 1
            return self._held[name].connection.session

    def close(self) -> None:
        """End all sessions and their work, except a session that another resource of the step uses."""
        with _lock:
            while self._held:
                name, session = self._held.popitem()
                session.users -= 1
                if not session.users:
                    _open.pop(name).close()

    def _server(self) -> ConnectServer:
        own = {name: value for name in ("master", "memory") if (value := getattr(self, name)) != _DEFAULTS[name]}
        if self.url is not None and own:
            raise InvalidOptionError(
                f"SparkSessionResource.{next(iter(own))} configures a server on this machine, but url names another; "
                "remove one of them."
            )
        return _share_server(self.url, **own)


_DEFAULTS = {"master": "local[*]", "memory": "1g"}


@cache
def _share_server(url: str | None, **own: str) -> ConnectServer:
    """Return one server for all resources of a process with equal options."""
    if url is not None:
        return ConnectServer(url=url)
    return ConnectServer(SparkOptions(**own)) if own else server_for(SparkOptions())


@dataclass(slots=True)
class _Session:
    """A session, its lease on the server, and the number of resources that use it."""

    connection: SparkConnection
    lease: SessionLease
    users: int = 0

    @classmethod
    def open(cls, name: _Name, conf: dict[str, str]) -> _Session:
        from orchestration_queue.spark.connect.control import fence  # these import gRPC, which takes a second
        from orchestration_queue.spark.connect.session import SparkConnection

        server, key = name
        session_id = _session_id(key)
        lease = server.lease_session(session_id)
        try:
            if not isinstance(key, int) and key[2] > 0:
                fence(lease.url, _session_id((*key[:2], key[2] - 1)))
            tag = "dagster" if isinstance(key, int) else f"dagster-{key[0]}-{key[1]}"
            # Spark refuses a comma in a tag.
            return cls(SparkConnection(lease.url, session_id, tag.replace(",", "_"), conf), lease)
        except BaseException:
            lease.release()
            raise

    def close(self) -> None:
        try:
            self.connection.cut()
            self.connection.close()
        finally:
            self.lease.release()


_Name: TypeAlias = tuple[ConnectServer, StepKey | int]
"""A session's server and its attempt of a step; outside a step, the id of the resource."""

_open: dict[_Name, _Session] = {}
"""The sessions of this process.

Dagster copies resources that other resources hold, such as IO managers. All copies must share a step's session, or its
DataFrames could not be joined.
"""
_lock = Lock()


def _session_id(key: StepKey | int) -> str:
    """Return the session id of an attempt of a step, equal in all processes; outside a step, a new one."""
    return str(uuid.uuid4() if isinstance(key, int) else uuid.uuid5(_NAMESPACE, "\n".join(map(str, key))))
