"""Build graphs: node by node, or from common shapes (sequences, groups, trees).

::

    chain(Node("extract"), group(Node("flights"), Node("weather")), Node("report")).dag("etl", queue="data")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from orchestration_queue.errors import FlowError
from orchestration_queue.flows.dag import Dag, FlowOptions, check_node, leaves, roots
from orchestration_queue.flows.mapping import mapped_node, moved_data
from orchestration_queue.flows.node import NO_OPTIONS, Node, TriggerRule
from orchestration_queue.options import JobOptions

__all__ = ["DagBuilder", "Dependency", "Part", "Shape", "SubFlow", "chain", "chord", "group", "names_of", "tree"]


@dataclass(frozen=True, slots=True)
class SubFlow:
    """A flow included in another. Waiting for it means waiting for its leaves.

    Attributes:
        name: Its name there; its nodes' names begin with it and a dot.
        leaves: Names of its nodes that none of its other nodes waits for.
    """

    name: str
    leaves: tuple[str, ...]


Dependency: TypeAlias = Node | SubFlow | str
"""What a node can wait for: a node, by itself or by name, or an included flow."""


class DagBuilder:
    """Build a graph node by node; later nodes refer to earlier ones.

    Examples:
        >>> etl = DagBuilder("etl", queue="data")
        >>> extract = etl.node("extract", data={"day": "2013-01-01"})
        >>> clean = etl.node("clean", deps=[extract])
        >>> [len(level) for level in etl.build().levels]
        [1, 1]

    Args:
        name: The graph's name.
        queue: The queue of nodes without their own.
        options: Options of the flow as a whole.
    """

    def __init__(self, name: str, *, queue: str, options: FlowOptions | None = None) -> None:
        self._name = name
        self._queue = queue
        self._options = FlowOptions.coerce(options, "options")
        self._nodes: list[Node] = []

    def node(
        self,
        name: str,
        task: str | None = None,
        *,
        queue: str | None = None,
        data: object = None,
        options: JobOptions = NO_OPTIONS,
        deps: Iterable[Dependency] = (),
        trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS,
        optional_deps: Iterable[Dependency] = (),
    ) -> Node:
        """Add a node. The arguments are those of :class:`Node`; dependencies can be nodes, sub-flows, or names.

        Raises:
            InvalidNameError: The name can't be part of a job id.
            FlowError: An option is not possible in a flow.
        """
        return self.add(Node(name, task, queue, data, options, names_of(deps), trigger_rule, names_of(optional_deps)))

    def map(
        self,
        name: str,
        task: str,
        *,
        over: Dependency,
        as_: str | None = None,
        data: Mapping[str, Any] | None = None,
        queue: str | None = None,
        options: JobOptions = NO_OPTIONS,
        deps: Iterable[Dependency] = (),
        max_concurrency: int | None = None,
        allow_failures: bool = False,
    ) -> Node:
        """Add a node that runs a task once for each element of the list that another node returns.

        Element 17 is the job ``{flow_id}.{name}[17]``. Nodes that wait for this one read the results, in the order of
        the list, with ``job.map_results(name)``; the node's own result is ``{"count": ...}``. At least one worker of
        this package must serve the queue.

        Args:
            name: Unique in the flow.
            task: The name of the elements' jobs.
            over: The node that returns the list, of at most 20,000 elements and 1 MiB of JSON.
            as_: The key, or a task's parameter, for the element in its job's data. Without it, the element itself is
                the data, or is merged with ``data`` if elements are dicts.
            data: Further data of all elements' jobs.
            queue: The queue of the elements; None: the flow's queue.
            options: How the elements are retried and limited.
            deps: What else the node waits for.
            max_concurrency: Maximum elements at a time, started in order; None sets no limit.
            allow_failures: Complete even if elements failed. Their results are read as None, and the node's own result
                names the first of them. Without it, the node fails once all have ended if one has failed.

        Raises:
            InvalidNameError: The name can't be part of a job id.
            InvalidOptionError: The arguments contradict each other.
            FlowError: An option is not possible for elements, or ``over`` is more than one node.
        """
        lists, others = names_of([over]), names_of(deps)
        return self.add(
            mapped_node(
                name,
                task,
                lists,
                others,
                queue=queue,
                as_=as_,
                data=data,
                options=options,
                max_concurrency=max_concurrency,
                allow_failures=allow_failures,
            )
        )

    def add(self, node: Node) -> Node:
        """Add an existing node, for example from :meth:`Task.node`; return it."""
        self._nodes.append(check_node(node, f"Flow {self._name!r}"))
        return node

    def include(self, dag: Dag, *, as_: str, deps: Iterable[Dependency] = ()) -> SubFlow:
        """Add all nodes of another graph.

        Args:
            dag: The graph, with its callbacks, if any. They are called for its own nodes only.
            as_: Its name here: its nodes are named ``{as_}.{node}``.
            deps: What its nodes without dependencies wait for.

        Returns:
            The sub-flow, for others to wait for.

        Raises:
            InvalidNameError: The name can't be part of a job id.
            FlowError: The graph has options that only apply to a whole flow, or a node can't wait for ``deps``.
        """
        if not isinstance(dag, Dag):
            raise FlowError(f"Flow {self._name!r} can only include a Dag, got {dag!r}; pass the result of `build()`.")
        alone = FlowOptions(on_success=dag.options.on_success, on_failure=dag.options.on_failure)
        own = [name for name in FlowOptions.model_fields if getattr(dag.options, name) != getattr(alone, name)]
        if own:
            raise FlowError(
                f"Flow {dag.name!r} has the option {own[0]}, which applies to a whole flow, but it becomes a part of "
                f"flow {self._name!r}; set the option there."
            )
        first = names_of(deps)
        for node in dag.all_nodes:
            self.add(
                replace(
                    node,
                    name=f"{as_}.{node.name}",
                    task=node.job_name,
                    queue=dag.queue_of(node),
                    data=moved_data(node, f"{as_}."),
                    deps=[f"{as_}.{name}" for name in node.deps] if node.waits_for else first,
                    optional_deps=[f"{as_}.{name}" for name in node.optional_deps],
                )
            )
        return SubFlow(as_, tuple(f"{as_}.{name}" for name in leaves(dag.nodes)))

    def build(self) -> Dag:
        """Return the graph.

        Raises:
            FlowError: It is invalid; see :class:`Dag`.
        """
        return Dag(self._name, self._nodes, self._queue, self._options)


def names_of(deps: Iterable[Dependency]) -> Sequence[str]:
    """Return the names of the nodes in these dependencies."""
    if isinstance(deps, str):
        return deps  # refused by the node, which knows its name
    names: list[str] = []
    for dep in deps:
        if isinstance(dep, SubFlow):
            names.extend(dep.leaves)
        else:
            names.append(dep.name if isinstance(dep, Node) else dep)
    return names


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
    return chain(group(*_check_parts("chord", parts)), callback)


def tree(job: Node, children: Iterable[Part] = ()) -> Shape:
    """Return a job that runs when its children have completed, which can be trees themselves.

    Raises:
        FlowError: The job has options that the wire ignores in waiting nodes.
    """
    branches = _check_parts("tree", children)
    return chord(branches, job) if branches else Shape((check_node(job, "A tree"),))


def _check_parts(what: str, parts: object) -> tuple[Any, ...]:
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise FlowError(f"A {what} takes a list of nodes, got {parts!r}; pass `[Node('load'), ...]`.")
    return tuple(parts)


def _shapes(what: str, parts: Sequence[Part]) -> list[tuple[Node, ...]]:
    if not parts:
        raise FlowError(f"A {what} needs at least one node; pass some.")
    return [part.nodes if isinstance(part, Shape) else (check_node(part, f"A {what}"),) for part in parts]
