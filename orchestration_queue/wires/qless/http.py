"""qless's queues over HTTP: the client of an app, and own routes that read and pause."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from orchestration_queue.errors import NotFoundError, UsageError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.v1.reading import page_of, wire_shape
from orchestration_queue.server import AsyncConnection
from orchestration_queue.wires.qless import AsyncQlessClient, QlessCounts, QlessJob, QlessWorkerCounts

__all__ = ["BODIES", "QUERIES", "ROUTES", "STATES", "Overview", "Served", "jobs_of"]

_LISTED = ("running", "stalled", "scheduled", "depends")
STATES: Final = ("waiting", *_LISTED)


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a qless server.

    Attributes:
        queues: The named queues with their counts.
        failures: Number of failed jobs of all queues, by group.
        workers: The workers of the last day.
        tracked: The tracked jobs of the named queues.
    """

    queues: Sequence[QlessCounts] = ()
    failures: Mapping[str, int] = field(default_factory=dict)
    workers: Sequence[QlessWorkerCounts] = ()
    tracked: Sequence[QlessJob] = ()


class Served:
    """The client of qless's queues on an app's server, connected on first use.

    Args:
        connection: The connection to the server.
        names: Names of the queues.
    """

    def __init__(self, connection: AsyncConnection, names: Sequence[str]) -> None:
        self._connection, self.names = connection, names
        self._client: AsyncQlessClient | None = None

    def client(self, *names: str) -> AsyncQlessClient:
        """Return the client of all queues.

        Raises:
            NotFoundError: The app does not serve one of the queues.
        """
        unknown = next((name for name in names if name not in self.names), None)
        if unknown is not None:
            raise NotFoundError(f"qless's queue {unknown!r} is not served; add it to `--wire qless=`.")
        if self._client is None:
            self._client = AsyncQlessClient(url=self._connection.url, worker="console")
        return self._client

    async def overview(self) -> Overview:
        """Read the state of qless; empty when no queue is named."""
        if not self.names:
            return Overview()
        client = self.client()
        queues, failures, workers, tracked = await asyncio.gather(
            asyncio.gather(*(client.counts(name) for name in self.names)),
            client.failures(), client.workers(), client.tracked(),
        )  # fmt: skip
        return Overview(queues, failures, workers, [job for job in tracked if job.queue in self.names])

    async def aclose(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.aclose()


def _clients(request: Request) -> Served:
    return cast(Served, request.service.wires["qless"])


async def _show_server(request: Request) -> Json:
    """Count the jobs of qless's queues that are served, and all failures by group, workers and tracked jobs."""
    found = await _clients(request).overview()
    return Json(
        {
            "queues": [wire_shape(each) for each in found.queues],
            "failures": dict(found.failures),
            "workers": [wire_shape(each) for each in found.workers],
            "tracked": [wire_shape(job, "encoded") for job in found.tracked],
        }
    )


async def _show_queue(request: Request) -> Json:
    """Count a qless queue's jobs by state."""
    name = request.params["name"]
    return Json(wire_shape(await _clients(request).client(name).counts(name)))


async def jobs_of(served: Served, name: str, state: str, limit: int, offset: int = 0) -> list[QlessJob]:
    """Return a page of a qless queue's jobs; ``waiting`` are those that would be taken next.

    Raises:
        UsageError: The state is unknown.
    """
    client = served.client(name)
    if state == "waiting":
        return (await client.peek(name, limit + offset))[offset:]
    for known in _LISTED:
        if known == state:
            return await client.get_many(await client.jobs(name, known, offset, limit))  # type: ignore[arg-type]
    raise UsageError(f"`state` must be one of waiting, {', '.join(_LISTED)}, got {state[:80]!r}.")


async def _list_jobs(request: Request) -> Json:
    """List a qless queue's jobs of a ``state``; default those that would be taken next."""
    limit, offset = page_of(request)
    state = request.query.get("state") or "waiting"
    found = await jobs_of(_clients(request), request.params["name"], state, limit, offset)
    return Json({"jobs": [wire_shape(job, "encoded") for job in found]})


async def _pause(request: Request) -> Json:
    """Pause a qless queue."""
    name = request.params["name"]
    await _clients(request).client(name).pause(name)
    return Json({"is_paused": True})


async def _resume(request: Request) -> Json:
    """Resume a paused qless queue."""
    name = request.params["name"]
    await _clients(request).client(name).unpause(name)
    return Json({"is_paused": False})


_Q: Final = "/v1/qless/:name"
ROUTES: Final = tuple(
    Route(method, path, scope, handler, is_of_wire=True)
    for method, path, scope, handler in (
        ("GET", "/v1/qless", Scope.READ, _show_server),
        ("GET", _Q, Scope.READ, _show_queue),
        ("GET", f"{_Q}/jobs", Scope.READ, _list_jobs),
        ("POST", f"{_Q}/pause", Scope.ACT, _pause),
        ("POST", f"{_Q}/resume", Scope.ACT, _resume),
    )
)
BODIES: Final[dict[str, dict[str, Any]]] = {}
QUERIES: Final = {f"GET {_Q}/jobs": ("state", "limit", "offset")}
