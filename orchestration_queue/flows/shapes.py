"""Common shapes of graphs, made of nodes and of each other: sequences, groups, trees.

::

    chain(Node("extract"), group(Node("flights"), Node("weather")), Node("report")).dag("etl", queue="data")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from orchestration_queue.errors import FlowError
from orchestration_queue.flows.dag import Dag, FlowOptions, checked_node, leaves, roots
from orchestration_queue.flows.node import Node

__all__ = ["Part", "Shape", "chain", "chord", "group", "tree"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes with their dependencies, which can become part of a larger shape, or a graph.

    Attributes:
        nodes: The nodes, dependencies first.
    """

    nodes: tuple[Node, ...]

    def dag(self, name: str, *, queue: str, options: FlowOptions | None = None) -> Dag:
        """Return the shape as a graph.

        Args:
            name: The graph's name.
            queue: The queue of nodes without their own.
            options: Options of the flow as a whole.

        Raises:
            FlowError: It is invalid; see :class:`Dag`.
        """
        return Dag(name, self.nodes, queue, options or FlowOptions())


Part: TypeAlias = Node | Shape


def chain(*parts: Part) -> Shape:
    """Run the parts in sequence: the first nodes of each part wait for the last nodes of the previous one.

    Raises:
        FlowError: There is no part, one is not a node, or a waiting node has options that the wire ignores.
    """
    nodes: list[Node] = []
    before: Sequence[str] = ()
    for part in _shapes("chain", parts):
        first = set(roots(part))
        nodes += [replace(node, deps=before) if node.name in first else node for node in part]
        before = leaves(part)
    return Shape(tuple(nodes))


def group(*parts: Part) -> Shape:
    """Run the parts in parallel: no part waits for another.

    Raises:
        FlowError: There is no part.
    """
    return Shape(tuple(node for part in _shapes("group", parts) for node in part))


def chord(parts: Iterable[Part], callback: Part) -> Shape:
    """Run the parts in parallel, and the callback when all have completed.

    Raises:
        FlowError: There is no part, or the callback has options that the wire ignores in waiting nodes.
    """
    return chain(group(*_listed("chord", parts)), callback)


def tree(job: Node, children: Iterable[Part] = ()) -> Shape:
    """Return a job that runs when its children have completed, which can be trees themselves.

    Raises:
        FlowError: The job has options that the wire ignores in waiting nodes.
    """
    branches = _listed("tree", children)
    return chord(branches, job) if branches else Shape((checked_node(job, "A tree"),))


def _listed(what: str, parts: object) -> tuple[Any, ...]:
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise FlowError(f"A {what} takes a list of nodes, got {parts!r}; pass `[Node('load'), ...]`.")
    return tuple(parts)


def _shapes(what: str, parts: Sequence[Part]) -> list[tuple[Node, ...]]:
    if not parts:
        raise FlowError(f"A {what} needs at least one node; pass some.")
    return [part.nodes if isinstance(part, Shape) else (checked_node(part, f"A {what}"),) for part in parts]
