"""Finds the route of a path: case-insensitive words, and parameters that match one part each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestration_queue.http.routes import Route

__all__ = ["HttpRouter"]


@dataclass(slots=True)
class _Place:
    """A place in the tree of paths.

    Attributes:
        words: The places behind literal parts.
        any: The place behind a parameter.
        routes: The routes that end here, with the names of their parameters.
    """

    words: dict[str, _Place] = field(default_factory=dict)
    any: _Place | None = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)


class HttpRouter:
    """A table of routes.

    Args:
        routes: The routes.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Place()
        for route in routes:
            place, names = self._root, []
            for part in route.path.split("/")[1:]:
                if part.startswith(":"):
                    names.append(part[1:])
                    place.any = place = place.any or _Place()
                else:
                    place = place.words.setdefault(part.lower(), _Place())
            place.routes[route.method] = (route, tuple(names))

    def find(self, method: str, parts: Sequence[str]) -> tuple[Route, dict[str, str]] | None:
        """Return the route for a path, and its parameters; None for an unknown path."""
        for place, values in self._walk(self._root, parts, ()):
            if method in place.routes:
                route, names = place.routes[method]
                return route, dict(zip(names, values, strict=True))
        return None

    def methods(self, parts: Sequence[str]) -> list[str]:
        """Return the methods that a path knows."""
        found = {method for place, _ in self._walk(self._root, parts, ()) for method in place.routes}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))

    def _walk(
        self, place: _Place, parts: Sequence[str], values: tuple[str, ...]
    ) -> list[tuple[_Place, tuple[str, ...]]]:
        """Return the places that a path may mean, those with literal words first."""
        if not parts:
            return [(place, values)] if place.routes else []
        found = []
        if (word := place.words.get(parts[0].lower())) is not None:
            found += self._walk(word, parts[1:], values)
        if place.any is not None and parts[0]:
            found += self._walk(place.any, parts[1:], (*values, parts[0]))
        return found
