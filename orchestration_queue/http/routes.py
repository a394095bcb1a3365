"""All routes as data, with method, path, scope and handler, and the router that finds the route of a path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from orchestration_queue.http import (
    event_routes,
    flow_routes,
    job_routes,
    queue_routes,
    scheduler_routes,
)
from orchestration_queue.http.messages import Request, Response

__all__ = ["PROXY_ROUTES", "Handler", "HttpRouter", "Route", "Scope"]

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Scope(StrEnum):
    """A permission of a token. ``act`` includes those before it, ``admin`` all; the first three are independent."""

    READ = "read"
    """Read everything."""
    ADD = "add"
    """Add jobs, flows and messages, and wait for their results."""
    WORK = "work"
    """Take jobs and report their outcomes."""
    ACT = "act"
    """Change existing jobs, queues, flows and schedulers."""
    ADMIN = "admin"
    """Remove many things at once."""
    OPEN = "open"
    """Needs no token."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        method: The HTTP method.
        path: The path; ``:name`` is a queue (or broadcast), other words after a colon are ids.
        scope: The scope that a token needs for it.
        handler: Answers the request.
        is_of_wire: Whether its queues are of another wire, and named separately.
    """

    method: str
    path: str
    scope: Scope
    handler: Handler
    is_of_wire: bool = False

    @property
    def is_page(self) -> bool:
        """Whether it belongs to the console."""
        return self.path.startswith("/ui")

    @property
    def is_own(self) -> bool:
        """Whether it is our own, not one of glide-mq's proxy."""
        return self.path.startswith("/v1/")

    @property
    def names_queue(self) -> bool:
        """Whether the path names a queue."""
        return "/:name" in self.path


_READ, _ADD, _ACT, _ADMIN = Scope.READ, Scope.ADD, Scope.ACT, Scope.ADMIN
_Q, _J, _D, _S = "/queues/:name", "/queues/:name/jobs", "/queues/:name/dlq", "/queues/:name/schedulers"

PROXY_ROUTES: tuple[Route, ...] = (
    Route("POST", _J, _ADD, job_routes.add_job),
    Route("POST", f"{_J}/bulk", _ADD, job_routes.add_bulk),
    Route("GET", _J, _READ, job_routes.list_jobs),
    Route("POST", f"{_J}/wait", _ADD, job_routes.add_and_wait),
    Route("GET", f"{_J}/:id", _READ, job_routes.get_job),
    Route("GET", _D, _READ, queue_routes.list_dead_letters),
    Route("POST", f"{_D}/replay-all", _ACT, queue_routes.replay_all),
    Route("GET", f"{_D}/:id", _READ, queue_routes.get_dead_letter),
    Route("POST", f"{_D}/:id/replay", _ACT, queue_routes.replay_dead_letter),
    Route("DELETE", f"{_D}/:id", _ACT, queue_routes.drop_dead_letter),
    Route("POST", f"{_J}/:id/priority", _ACT, job_routes.change_priority),
    Route("POST", f"{_J}/:id/delay", _ACT, job_routes.change_delay),
    Route("POST", f"{_J}/:id/promote", _ACT, job_routes.promote_job),
    Route("GET", f"{_J}/:id/stream", _READ, event_routes.job_stream),
    Route("GET", f"{_J}/:id/events", _READ, event_routes.job_events),
    Route("GET", f"{_Q}/events", _READ, event_routes.queue_events),
    Route("POST", f"{_Q}/pause", _ACT, queue_routes.pause),
    Route("POST", f"{_Q}/resume", _ACT, queue_routes.resume),
    Route("GET", f"{_Q}/counts", _READ, queue_routes.counts),
    Route("GET", f"{_Q}/metrics", _READ, queue_routes.metrics),
    Route("GET", f"{_Q}/workers", _READ, queue_routes.list_workers),
    Route("GET", f"{_Q}/suspended", _READ, queue_routes.list_suspended),
    Route("POST", f"{_Q}/drain", _ADMIN, queue_routes.drain),
    Route("POST", f"{_Q}/retry", _ACT, queue_routes.retry),
    Route("DELETE", f"{_Q}/clean", _ADMIN, queue_routes.clean),
    Route("GET", _S, _READ, scheduler_routes.list_schedulers),
    Route("GET", f"{_S}/:id", _READ, scheduler_routes.get_scheduler),
    Route("PUT", f"{_S}/:id", _ACT, scheduler_routes.put_scheduler),
    Route("DELETE", f"{_S}/:id", _ACT, scheduler_routes.remove_scheduler),
    Route("GET", f"{_Q}/flows/:parentId/usage", _READ, queue_routes.flow_usage),
    Route("GET", f"{_Q}/flows/:flowId/budget", _READ, queue_routes.flow_budget),
    Route("POST", "/flows", _ADD, flow_routes.submit_flow),
    Route("GET", "/flows/:id", _READ, flow_routes.get_flow),
    Route("GET", "/flows/:id/tree", _READ, flow_routes.get_tree),
    Route("DELETE", "/flows/:id", _ACT, flow_routes.cancel_flow),
    Route("GET", "/usage/summary", _READ, queue_routes.usage_summary),
    Route("GET", f"{_J}/:id/suspend", _READ, job_routes.get_suspension),
    Route("POST", f"{_J}/:id/signal", _ACT, job_routes.signal_job),
    Route("POST", f"{_J}/:id/revoke", _ACT, job_routes.cancel_job),
    Route("GET", f"{_Q}/rate-limit", _READ, queue_routes.get_rate_limit),
    Route("PUT", f"{_Q}/rate-limit", _ACT, queue_routes.set_rate_limit),
    Route("DELETE", f"{_Q}/rate-limit", _ACT, queue_routes.remove_rate_limit),
    Route("POST", "/broadcast/:name", _ADD, event_routes.publish),
    Route("GET", "/broadcast/:name/events", _READ, event_routes.subscribe),
    Route("GET", "/health", Scope.OPEN, queue_routes.health),
)


@dataclass(slots=True)
class _PathNode:
    """A node in the tree of paths.

    Attributes:
        words: The nodes after literal parts.
        any: The node after a parameter.
        routes: The routes that end here, with the names of their parameters.
    """

    words: dict[str, _PathNode] = field(default_factory=dict)
    any: _PathNode | None = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)


class HttpRouter:
    """A table of routes.

    Args:
        routes: The routes.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _PathNode()
        for route in routes:
            node, names = self._root, []
            for part in route.path.split("/")[1:]:
                if part.startswith(":"):
                    names.append(part[1:])
                    node.any = node = node.any or _PathNode()
                else:
                    node = node.words.setdefault(part.lower(), _PathNode())
            node.routes[route.method] = (route, tuple(names))

    def find(self, method: str, parts: Sequence[str]) -> tuple[Route, dict[str, str]] | None:
        """Return the route for a path, and its parameters; None for an unknown path."""
        for node, values in self._walk(self._root, parts, ()):
            if method in node.routes:
                route, names = node.routes[method]
                return route, dict(zip(names, values, strict=True))
        return None

    def methods(self, parts: Sequence[str]) -> list[str]:
        """Return the methods of a path."""
        found = {method for node, _ in self._walk(self._root, parts, ()) for method in node.routes}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))

    def _walk(
        self, node: _PathNode, parts: Sequence[str], values: tuple[str, ...]
    ) -> list[tuple[_PathNode, tuple[str, ...]]]:
        """Return the nodes that match a path, those with literal words first."""
        if not parts:
            return [(node, values)] if node.routes else []
        found = []
        if (word := node.words.get(parts[0].lower())) is not None:
            found += self._walk(word, parts[1:], values)
        if node.any is not None and parts[0]:
            found += self._walk(node.any, parts[1:], (*values, parts[0]))
        return found
