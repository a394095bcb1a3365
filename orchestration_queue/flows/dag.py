"""Graphs as data: nodes that name what they wait for. A :class:`Dag` that exists can run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from orchestration_queue.errors import FlowError, InvalidNameError
from orchestration_queue.flows import kahn
from orchestration_queue.options import JobOptions, name_problem
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["Dag", "DagBuilder", "Node"]

_NO_OPTIONS = JobOptions()


@dataclass(frozen=True, slots=True)
class Node:
    """One job of a flow, and the nodes it waits for.

    Attributes:
        name: Unique in the flow; its job's id is ``{flow_id}.{name}``.
        task: The job's name, by which workers choose the handler; None takes the node's name.
        queue: Where it runs; None takes the flow's queue.
        data: The job's data, any JSON value.
        options: How the job is retried, limited and kept. What the wire would ignore in a flow is refused.
        deps: Names of the nodes that must complete first.

    Raises:
        InvalidNameError: The name cannot be part of a job id.
        FlowError: The options cannot be kept in a flow, or ``deps`` is no sequence of names.
    """

    name: str
    task: str | None = None
    queue: str | None = None
    data: object = field(default=None, hash=False)
    options: JobOptions = _NO_OPTIONS
    deps: Sequence[str] = ()

    def __post_init__(self) -> None:
        if problem := name_problem(self.name):
            raise InvalidNameError(
                f"Node name {self.name!r} {problem}, which job ids cannot carry; use letters, digits, '.', '-' and '_'."
            )
        if isinstance(self.deps, str):
            raise FlowError(f"Node {self.name!r} has the text {self.deps!r} as deps; pass a list of names.")
        object.__setattr__(self, "deps", tuple(dict.fromkeys(self.deps)))
        if problem := _option_problem(self.options, waits=bool(self.deps)):
            raise FlowError(f"Node {self.name!r} {problem}.")

    @property
    def job_name(self) -> str:
        """What workers see as the job's name."""
        return self.task or self.name


def _option_problem(options: JobOptions, *, waits: bool) -> str | None:
    """Which option a flow cannot keep, why, and what to do."""
    if options.job_id is not None:
        return "has its own job_id, but ids of a flow are made of flow id and node name; drop job_id"
    if options.deduplication is not None:
        return "has deduplication, which would leave its dependents waiting for a job that was never added; drop it"
    if options.ordering is not None and (problem := name_problem(options.ordering.key)):
        return f"has an ordering key that {problem}, which no client accepts in flows; choose another"
    if not waits:
        return None
    ignored = [name for name in ("delay", "priority", "lifo") if getattr(options, name)]
    if ignored:
        # The wire stores them and puts the released job at the end of the stream all the same; a stored priority or
        # lifo then also makes servers count the running job as one that came from a list.
        return f"waits for other nodes, and the wire ignores {ignored[0]} on release; drop {ignored[0]}"
    if options.ordering is not None:
        # Turns are taken when the job is added, and a flow's dependents are added before their dependencies.
        return (
            "waits for other nodes, and would hold its turn in the ordering group meanwhile, "
            "so that later jobs of the group (its own dependencies among them) could not start; drop ordering"
        )
    return None


@dataclass(frozen=True, slots=True)
class Dag:
    """A graph of jobs that can run: names are unique, dependencies exist, and nothing waits for itself.

    Attributes:
        name: What the graph is called in listings and drawings.
        nodes: The jobs, in any order.
        queue: Where nodes without a queue of their own run.
        levels: The nodes by level: those of one level wait only for lower ones.

    Raises:
        DuplicateNodeError: Two nodes have one name.
        UnknownDependencyError: A node waits for a name that no node has.
        CycleError: Nodes wait for each other.
        InvalidNameError: A queue's name is one the wire cannot carry.
        FlowError: There is no node.
    """

    name: str
    nodes: Sequence[Node]
    queue: str
    levels: tuple[tuple[Node, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        if not self.nodes:
            raise FlowError(f"Flow {self.name!r} has no node; a flow requires at least one node.")
        for queue in {self.queue, *(node.queue for node in self.nodes if node.queue is not None)}:
            QueueKeys(queue)
        levels = kahn.levels((node.name, node.deps) for node in self.nodes)
        by_name = {node.name: node for node in self.nodes}
        object.__setattr__(self, "levels", tuple(tuple(by_name[name] for name in level) for level in levels))

    def queue_of(self, node: Node) -> str:
        """The queue the node runs in."""
        return self.queue if node.queue is None else node.queue


class DagBuilder:
    """Write a graph down node by node; each node can be named by those after it.

    Example:
        >>> etl = DagBuilder("etl", queue="data")
        >>> extract = etl.node("extract", data={"day": "2013-01-01"})
        >>> clean = etl.node("clean", deps=[extract])
        >>> [len(level) for level in etl.build().levels]
        [1, 1]
    """

    def __init__(self, name: str, *, queue: str) -> None:
        self._name = name
        self._queue = queue
        self._nodes: list[Node] = []

    def node(
        self,
        name: str,
        task: str | None = None,
        *,
        queue: str | None = None,
        data: object = None,
        options: JobOptions = _NO_OPTIONS,
        deps: Iterable[Node | str] = (),
    ) -> Node:
        """Add a node, as :class:`Node` describes it; ``deps`` takes nodes as well as names.

        Raises:
            InvalidNameError: The name cannot be part of a job id.
            FlowError: The options cannot be kept in a flow.
        """
        names: Sequence[str] = (
            deps if isinstance(deps, str) else [dep.name if isinstance(dep, Node) else dep for dep in deps]
        )
        node = Node(name, task, queue, data, options, names)
        self._nodes.append(node)
        return node

    def build(self) -> Dag:
        """The graph, frozen.

        Raises:
            FlowError: It cannot run, as :class:`Dag` says.
        """
        return Dag(self._name, self._nodes, self._queue)
