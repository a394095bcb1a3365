"""ChasquiMQ's queues over HTTP: the clients of an app, and own routes that read, pause, and replay dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from orchestration_queue.errors import NotFoundError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.openapi import WORDS_OR_ALL, body, or_null
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.v1.reading import members, plain, whole, wire_shape
from orchestration_queue.server import AsyncConnection

if TYPE_CHECKING:  # they need the extra `msgpack`
    from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, ChasquiCounts

__all__ = ["BODIES", "QUERIES", "ROUTES", "Served"]


class Served:
    """Clients of ChasquiMQ's queues on an app's server, connected on first use.

    Args:
        connection: The connection to the server.
        names: Names of the queues.
    """

    def __init__(self, connection: AsyncConnection, names: Sequence[str]) -> None:
        self._connection, self.names = connection, names
        self._queues: dict[str, AsyncChasquiQueue] = {}

    def queue(self, name: str) -> AsyncChasquiQueue:
        """Return the client of a queue.

        Raises:
            NotFoundError: The app does not serve it.
        """
        from orchestration_queue.wires.chasquimq import AsyncChasquiQueue

        if name not in self.names:
            raise NotFoundError(f"ChasquiMQ's queue {name!r} is not served; add it to `--wire chasquimq=`.")
        if name not in self._queues:
            self._queues[name] = AsyncChasquiQueue(name, url=self._connection.url)
        return self._queues[name]

    async def counts(self) -> list[tuple[str, ChasquiCounts]]:
        """Count the jobs of all queues."""
        found = await asyncio.gather(*(self.queue(name).counts() for name in self.names))
        return list(zip(self.names, found, strict=True))

    async def aclose(self) -> None:
        """Disconnect."""
        for queue in self._queues.values():
            await queue.aclose()


def _clients(request: Request) -> Served:
    return cast(Served, request.service.wires["chasquimq"])


async def _list_queues(request: Request) -> Json:
    """Count the jobs of ChasquiMQ's queues that are served."""
    found = await _clients(request).counts()
    return Json({"queues": [{"name": name, **wire_shape(counts)} for name, counts in found]})


async def _show_queue(request: Request) -> Json:
    """Count a ChasquiMQ queue's jobs."""
    name = request.params["name"]
    return Json({"name": name, **wire_shape(await _clients(request).queue(name).counts())})


async def _list_jobs(request: Request) -> Json:
    """List a ChasquiMQ queue's jobs: ready or running, the oldest first, and delayed ones."""
    queue = _clients(request).queue(request.params["name"])
    limit = whole(request, "limit", 100, most=1000)
    jobs, delayed = await asyncio.gather(queue.list_jobs(limit), queue.list_delayed(limit))
    later = [{"due_at": plain(at), **wire_shape(job, "is_new")} for at, job in delayed]
    return Json({"jobs": [wire_shape(job, "is_new") for job in jobs], "delayed": later})


async def _list_letters(request: Request) -> Json:
    """List a ChasquiMQ queue's dead letters, oldest first; ``after`` is the id to continue from."""
    queue = _clients(request).queue(request.params["name"])
    limit = whole(request, "limit", 100, most=1000)
    found = await queue.dead_letters(limit, after=request.query.get("after") or None)
    return Json({"dead_letters": [wire_shape(letter, "envelope") for letter in found]})


async def _replay_letters(request: Request) -> Json:
    """Make dead jobs ready again, oldest first: those of ``ids``, of a ``reason``, ``limit`` of them, or all."""
    body = members(request, "ids", "reason", "limit")
    queue = _clients(request).queue(request.params["name"])
    ids = body.get("ids")
    request.subject = ", ".join(map(str, ids))[:500] if isinstance(ids, list) else ""
    done = await queue.replay_dead_letters(body.get("limit"), ids=ids, reason=body.get("reason"))
    return Json({"replayed": done})


async def _drop_letters(request: Request) -> Json:
    """Remove all dead letters of a ChasquiMQ queue."""
    queue = _clients(request).queue(request.params["name"])
    return Json({"dropped": await queue.purge_dead_letters()})


async def _list_schedules(request: Request) -> Json:
    """List a ChasquiMQ queue's repeatable jobs, by their next run."""
    queue = _clients(request).queue(request.params["name"])
    found = await queue.schedules(whole(request, "limit", 100, most=1000))
    return Json(
        {
            "schedules": [
                {
                    "key": each.key,
                    "name": None if each.spec is None else each.spec.job_name,
                    "next_at": plain(each.next_at),
                    "fired": each.fired,
                }
                for each in found
            ]
        }
    )


async def _pause(request: Request) -> Json:
    """Pause a ChasquiMQ queue; workers of chasquimq 1.3.0 ignore it."""
    await _clients(request).queue(request.params["name"]).pause()
    return Json({"is_paused": True})


async def _resume(request: Request) -> Json:
    """Resume a paused ChasquiMQ queue."""
    await _clients(request).queue(request.params["name"]).resume()
    return Json({"is_paused": False})


_Q: Final = "/v1/chasquimq/:name"
ROUTES: Final = tuple(
    Route(method, path, scope, handler, is_of_wire=True)
    for method, path, scope, handler in (
        ("GET", "/v1/chasquimq", Scope.READ, _list_queues),
        ("GET", _Q, Scope.READ, _show_queue),
        ("GET", f"{_Q}/jobs", Scope.READ, _list_jobs),
        ("GET", f"{_Q}/dead-letters", Scope.READ, _list_letters),
        ("DELETE", f"{_Q}/dead-letters", Scope.ADMIN, _drop_letters),
        ("POST", f"{_Q}/dead-letters/replay", Scope.ACT, _replay_letters),
        ("GET", f"{_Q}/schedules", Scope.READ, _list_schedules),
        ("POST", f"{_Q}/pause", Scope.ACT, _pause),
        ("POST", f"{_Q}/resume", Scope.ACT, _resume),
    )
)
BODIES: Final[dict[str, dict[str, Any]]] = {
    f"POST {_Q}/dead-letters/replay": body(
        ids=WORDS_OR_ALL, reason=or_null("string"), limit=or_null("integer", minimum=0)
    ),
}
QUERIES: Final = {
    f"GET {_Q}/jobs": ("limit",),
    f"GET {_Q}/dead-letters": ("limit", "after"),
    f"GET {_Q}/schedules": ("limit",),
}
