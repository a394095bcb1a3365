"""Kahn's order: which nodes can run first, which next, and which cycle keeps the rest from running."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestration_queue.errors import CycleError, DuplicateNodeError, UnknownDependencyError

__all__ = ["levels"]


def levels(graph: Iterable[tuple[str, Sequence[str]]]) -> tuple[tuple[str, ...], ...]:
    """Sort names into levels, each after the levels it depends on.

    A name's level is one more than the highest level among its dependencies, or 0 without any. Within a level, names
    keep their order. Takes time proportional to names plus dependencies, without recursion.

    Args:
        graph: Pairs of a name and the distinct names it depends on.

    Raises:
        DuplicateNodeError: A name is repeated.
        UnknownDependencyError: A dependency is not a name of the graph.
        CycleError: Names depend on each other in a cycle; the path runs from each name to one that depends on it.
    """
    dependencies = _by_name(graph)
    position = {name: index for index, name in enumerate(dependencies)}
    dependents: dict[str, list[str]] = {name: [] for name in dependencies}
    for name, needed in dependencies.items():
        for dependency in needed:
            if dependency not in dependents:
                raise UnknownDependencyError(name, dependency)
            dependents[dependency].append(name)

    open_count = {name: len(needed) for name, needed in dependencies.items()}
    level = [name for name, count in open_count.items() if count == 0]
    ordered: list[tuple[str, ...]] = []
    while level:
        ordered.append(tuple(level))
        following: list[str] = []
        for finished in level:
            for name in dependents[finished]:
                open_count[name] -= 1
                if open_count[name] == 0:
                    following.append(name)
        level = sorted(following, key=position.__getitem__)
    blocked = {name for name, count in open_count.items() if count}
    if blocked:
        raise CycleError(_cycle(blocked, dependencies))
    return tuple(ordered)


def _by_name(graph: Iterable[tuple[str, Sequence[str]]]) -> dict[str, Sequence[str]]:
    dependencies: dict[str, Sequence[str]] = {}
    for name, needed in graph:
        if name in dependencies:
            raise DuplicateNodeError(name)
        dependencies[name] = needed
    return dependencies


def _cycle(blocked: set[str], dependencies: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a cycle among the blocked nodes: each has a blocked dependency, so following these leads into one."""
    walked: dict[str, int] = {}
    name = next(name for name in dependencies if name in blocked)
    while name not in walked:
        walked[name] = len(walked)
        name = next(dependency for dependency in dependencies[name] if dependency in blocked)
    circle = list(walked)[walked[name] :]
    return [name, *reversed(circle)]
