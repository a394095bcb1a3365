"""Graphs as data: nodes that name their dependencies. A :class:`Dag` that exists is valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, cast

from pydantic import Field, model_validator

from orchestration_queue.errors import FlowError, InvalidOptionError
from orchestration_queue.flows import kahn
from orchestration_queue.flows.mapping import MAP, map_problem
from orchestration_queue.flows.node import IGNORED_ON_RELEASE, Node, TriggerRule
from orchestration_queue.options import MAX_PRIORITY, Budget, Options, Retention
from orchestration_queue.options.base import MAX_COUNT
from orchestration_queue.options.durations import Positive
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["Dag", "FlowOptions", "check_node", "leaves", "nodes_of", "roots"]


class FlowOptions(Options):
    """Options of a flow as a whole.

    The workers of the flow's queue enforce ``fail_fast``, ``timeout`` and ``retention``, every few seconds.
    """

    fail_fast: bool = False
    """If a node fails for good, also cancel nodes that don't depend on it. Callbacks still run."""
    timeout: Positive | None = None
    """How long after its submission unfinished nodes of the flow are cancelled. None sets no limit."""
    retention: Retention | None = None
    """Which finished flows of the queue to keep, with all their jobs. None keeps all."""
    concurrency: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = None
    """Maximum nodes at a time; None sets no limit. A node waits for a slot once it could run.

    Slots are counted in one queue, so the nodes must be in one queue and have no ``ordering``.
    """
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0
    """The priority of nodes without dependencies and without their own.

    All other nodes run in the order in which they become ready: the wire releases jobs into the plain queue.
    """
    budget: Budget | None = None
    """What the nodes may use together, without callbacks."""
    on_success: Node | None = None
    """A node that runs when all leaves (the nodes that no node waits for) have completed. It names no ``deps``."""
    on_failure: Node | None = None
    """A node that runs as soon as any node has failed, and is skipped otherwise. It names no ``deps``."""

    @model_validator(mode="after")
    def _callbacks_wait_for_the_flow(self) -> FlowOptions:
        for name, node in (("on_success", self.on_success), ("on_failure", self.on_failure)):
            if node is not None and node.waits_for:
                raise InvalidOptionError(
                    f"Node {node.name!r} is a flow's {name}, which waits for the flow itself; drop its deps."
                )
            if node is not None and any(getattr(node.options, option) for option in IGNORED_ON_RELEASE):
                raise InvalidOptionError(
                    f"Node {node.name!r} is a flow's {name}, which waits for other nodes, but the wire ignores delay, "
                    "priority and lifo of waiting nodes; drop them."
                )
        return self


_NO_OPTIONS = FlowOptions()
_DEFAULT_RULE = TriggerRule.ALL_SUCCESS


@dataclass(frozen=True)
class Dag:
    """A graph of jobs that can run: names are unique, dependencies exist, and there are no cycles.

    Attributes:
        name: The graph's name in lists and diagrams.
        nodes: The jobs, in any order.
        queue: The queue of nodes without their own.
        options: Options of the flow as a whole.
        callbacks: The options' callbacks, with the nodes they wait for.
        levels: The nodes and callbacks by level: those of one level wait only for lower ones.

    Raises:
        DuplicateNodeError: Two nodes have the same name.
        UnknownDependencyError: A dependency is not a node's name.
        CycleError: Nodes wait for each other.
        InvalidNameError: A queue's name is invalid.
        FlowError: There is no node, or an option is not possible with these nodes.
    """

    name: str
    nodes: Sequence[Node]
    queue: str
    options: FlowOptions = _NO_OPTIONS
    callbacks: tuple[Node, ...] = field(init=False, repr=False, compare=False)
    levels: tuple[tuple[Node, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise FlowError(f"A flow's name must be non-empty text, got {self.name!r}; pass `name='nightly'`.")
        object.__setattr__(self, "nodes", nodes_of(self.nodes, f"Flow {self.name!r}"))
        object.__setattr__(self, "options", FlowOptions.coerce(self.options, "options"))
        if not self.nodes:
            raise FlowError(f"Flow {self.name!r} has no node; a flow requires at least one node.")
        object.__setattr__(self, "callbacks", tuple(self._build_callbacks()))
        by_name = {node.name: node for node in self.all_nodes}
        levels = kahn.levels((node.name, node.waits_for) for node in self.all_nodes)
        object.__setattr__(self, "levels", tuple(tuple(by_name[name] for name in level) for level in levels))
        for queue in self.queues:
            QueueKeys(queue)
        self._check_rules()
        self._check_maps()
        if self.options.concurrency is not None:
            self._check_concurrency()

    @cached_property
    def all_nodes(self) -> tuple[Node, ...]:
        """The nodes, followed by the callbacks."""
        return (*self.nodes, *self.callbacks)

    @cached_property
    def queues(self) -> list[str]:
        """The flow's queue, followed by those of its nodes, without duplicates."""
        return list(dict.fromkeys([self.queue, *map(self.queue_of, self.all_nodes)]))

    def queue_of(self, node: Node) -> str:
        """Return the queue that the node runs in."""
        # A node has replaced a remote queue with one of ours.
        return self.queue if node.queue is None else cast("str", node.queue)

    def _build_callbacks(self) -> Iterator[Node]:
        if (callback := self.options.on_success) is not None:
            yield replace(callback, deps=leaves(self.nodes))
        if (callback := self.options.on_failure) is not None:
            names = [node.name for node in self.nodes]
            yield replace(callback, deps=names, trigger_rule=TriggerRule.ONE_FAILED)

    def _check_rules(self) -> None:
        idle = next((node for node in self.nodes if node.trigger_rule is not _DEFAULT_RULE and not node.deps), None)
        if idle is not None:
            raise FlowError(
                f"Node {idle.name!r} has the trigger rule {idle.trigger_rule} but no deps; add some, or drop the rule."
            )

    def _check_maps(self) -> None:
        if problem := map_problem(self.all_nodes):
            raise FlowError(problem)
        mapped = next((node for node in self.all_nodes if node.job_name == MAP), None)
        counted = next((name for name in ("concurrency", "budget") if getattr(self.options, name) is not None), None)
        if mapped is not None and counted is not None:
            raise FlowError(
                f"Flow {self.name!r} has a {counted}, which counts its nodes, but the elements of node {mapped.name!r} "
                f"are not known yet; drop {counted}, or limit the elements with max_concurrency of the map."
            )

    def _check_concurrency(self) -> None:
        ordered = next((node for node in self.nodes if node.options.ordering is not None), None)
        if ordered is not None:
            raise FlowError(
                f"Node {ordered.name!r} has an ordering, but a job can't also count towards the concurrency of flow "
                f"{self.name!r}; drop its ordering or the flow's concurrency."
            )
        queues = dict.fromkeys(map(self.queue_of, self.nodes))
        if len(queues) > 1:
            raise FlowError(
                f"Flow {self.name!r} has a concurrency and nodes in queues {', '.join(queues)}, but running nodes are "
                "counted within one queue; put its nodes in one queue, or drop concurrency."
            )


def nodes_of(nodes: object, owner: str) -> tuple[Node, ...]:
    """Return the nodes of an iterable.

    Raises:
        FlowError: It contains something else, or is not iterable.
    """
    if isinstance(nodes, str | Mapping) or not isinstance(nodes, Iterable):
        raise FlowError(f"{owner} must have a list of nodes, got {nodes!r}; pass `[Node('load'), ...]`.")
    found = tuple(nodes)
    for node in found:
        if not isinstance(node, Node):
            check_node(node, owner)
    return found


def check_node(node: object, owner: str) -> Node:
    """Return a node.

    Raises:
        FlowError: It is something else.
    """
    if isinstance(node, Node):
        return node
    advice = "call what Task.node() returned with the task's arguments" if callable(node) else "pass Node('load')"
    raise FlowError(f"{owner} must consist of nodes, got {node!r}; {advice}.")


def roots(nodes: Sequence[Node]) -> list[str]:
    """Return the names of the nodes without dependencies."""
    return [node.name for node in nodes if not node.waits_for]


def leaves(nodes: Sequence[Node]) -> list[str]:
    """Return the names of the nodes without dependents."""
    awaited = {name for node in nodes for name in node.waits_for}
    return [node.name for node in nodes if node.name not in awaited]
