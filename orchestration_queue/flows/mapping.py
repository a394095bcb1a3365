"""Mapped nodes: they run a task once for each element of a list that another node returns.

Such a node is a job with a reserved name, which workers of this package run themselves. It adds the elements as jobs,
waits until all have ended, and then ends itself, so that it is what others wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from orchestration_queue.errors import FlowError, InvalidOptionError, PayloadError
from orchestration_queue.flows.node import NO_OPTIONS, Node
from orchestration_queue.options import Backoff, JobOptions, Ordering
from orchestration_queue.options.base import MAX_COUNT, Options
from orchestration_queue.options.job import Headers
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.functions.oq1 import NewJob
from orchestration_queue.protocol.placement import JobEncoder

__all__ = [
    "MAP",
    "MAX_ELEMENTS",
    "ElementMap",
    "bound_data",
    "element",
    "element_index",
    "group_of",
    "map_problem",
    "mapped_node",
    "moved_data",
]

MAP: Final = "oq.map"
"""The name of the jobs of such nodes."""

MAX_ELEMENTS: Final = 20_000
"""Maximum elements of one node: their outcomes are read in one call when its job resumes."""

_OWN_OPTIONS = JobOptions(attempts=5, backoff=Backoff(delay=timedelta(seconds=1)))
"""How the node's own job is retried if the server is unreachable. It runs no user code."""


_NO_HEADERS = Headers()


class ElementMap(Options):
    """What a node does with each element: the data of its job."""

    over: str
    """The node that returns the list."""
    over_queue: str | None = None
    """The queue of that node's job; None before the graph is compiled."""
    task: Annotated[str, Field(min_length=1)]
    """The name of the elements' jobs."""
    parameter: Annotated[str, Field(min_length=1)] | None = None
    """The key of the element in its job's data; None if it is the data itself, or merged with it."""
    data: dict[str, Any] | None = None
    """Further data of all elements' jobs."""
    options: JobOptions = NO_OPTIONS
    """How the elements' jobs are retried and limited."""
    max_concurrency: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = None
    """Maximum elements at a time."""
    allow_failures: bool = False
    """Whether the node completes when some have failed."""
    count: int | None = None
    """How many elements there are; None until all have been added."""

    @model_validator(mode="after")
    def _agree(self) -> ElementMap:
        if self.parameter is not None and self.data and self.parameter in self.data:
            raise InvalidOptionError(
                f"A map over {self.over!r} uses {self.parameter!r} both for the element and in the data of all "
                "elements; drop one of them."
            )
        if self.max_concurrency is not None and self.options.ordering is not None:
            raise InvalidOptionError(
                f"A map over {self.over!r} has max_concurrency and options with an ordering, but a job belongs to one "
                "group only; use ordering.concurrency instead."
            )
        return self

    def node(self, name: str, queue: str | None, deps: Iterable[str] = ()) -> Node:
        """Return the node.

        Raises:
            InvalidNameError: The name can't be part of a job id.
            FlowError: An option is not possible for elements.
            PayloadError: The data for all elements is not JSON, or larger than 1 MiB.
        """
        codec.encode(self.data, f"The data of the elements of node {name!r}")
        Node(name, self.task, options=self.options)  # the same options are refused for elements as for nodes
        if self.options.remove_on_complete is not None or self.options.remove_on_fail is not None:
            raise FlowError(
                f"Node {name!r} removes its elements' jobs when they end, but their results are read later; drop "
                "remove_on_complete and remove_on_fail, and give the flow a retention."
            )
        data = self.model_dump(mode="json", exclude_defaults=True)
        return Node(name, MAP, queue, data, _OWN_OPTIONS, (self.over, *deps))

    def data_of(self, value: object) -> object:
        """Return the data of one element's job.

        Raises:
            PayloadError: The element has no key there, and is not a dict.
        """
        if self.parameter is not None:
            return {**(self.data or {}), self.parameter: value}
        if self.data is None:
            return value
        if not isinstance(value, dict):
            raise PayloadError(
                f"An element is a {type(value).__name__}, but only a dict can be merged with the data of all elements; "
                'name the element with as_="...", or drop data.'
            )
        return {**self.data, **value}

    def jobs(
        self, job_id: str, values: Sequence[object], now_ms: int, headers: Mapping[str, str] = _NO_HEADERS
    ) -> Iterator[NewJob]:
        """Yield the elements' jobs, in order.

        Args:
            job_id: The node's own job.
            values: The elements.
            now_ms: Epoch milliseconds by the caller's clock.
            headers: The headers of the node's own job, which its elements get unless their options set the same names.

        Raises:
            PayloadError: An element's job can't get its data; the error names the element.
        """
        encoder = JobEncoder.of(self._element_options(job_id, headers), now_ms)
        for index, value in enumerate(values):
            child_id = element(job_id, index)
            data = codec.encode(self.data_of(value), f"The data of element {index}")
            yield encoder.job(self.task, data, child_id, now_ms)

    def _element_options(self, job_id: str, headers: Mapping[str, str]) -> JobOptions:
        changes: dict[str, Any] = {"headers": Headers({**headers, **self.options.headers})}
        if self.max_concurrency is not None:
            changes["ordering"] = Ordering(key=group_of(job_id), concurrency=self.max_concurrency)
        return self.options.model_copy(update=changes)


def mapped_node(
    name: str,
    task: str,
    over: Sequence[str],
    deps: Sequence[str],
    *,
    queue: str | None,
    as_: str | None,
    data: Mapping[str, Any] | None,
    options: JobOptions,
    max_concurrency: int | None,
    allow_failures: bool,
) -> Node:
    """Return a mapped node, as :meth:`DagBuilder.map` describes it, over the only node in ``over``."""
    if len(over) != 1 or isinstance(over, str):
        raise FlowError(f"Node {name!r} maps over {len(over)} nodes, but needs exactly one; name one.")
    elements = ElementMap(
        over=over[0],
        task=task,
        parameter=as_,
        data=data,
        options=options,
        max_concurrency=max_concurrency,
        allow_failures=allow_failures,
    )
    return elements.node(name, queue, deps)


def group_of(job_id: str) -> str:
    """Return the group in which a node's running elements are counted."""
    return f"map.{job_id}"


def element(name: str, index: int) -> str:
    """Return an element's name or job id, from that of its node."""
    return f"{name}[{index}]"


def element_index(name: str, element_name: str) -> int | None:
    """Return an element's index from its name; None for any other name. The reverse of :func:`element`."""
    inner = element_name.removeprefix(f"{name}[").removesuffix("]")
    return int(inner) if inner.isdecimal() and element(name, int(inner)) == element_name else None


def moved_data(node: Node, prefix: str) -> object:
    """Return a node's data when its graph is included in another, where all names begin with ``prefix``."""
    if node.job_name != MAP or not isinstance(node.data, dict):
        return node.data
    return {**node.data, "over": f"{prefix}{node.data['over']}"}


def bound_data(node: Node, queues: Mapping[str, str]) -> object:
    """Return a node's data for its job: a map also contains the queue of the node that returns its list."""
    if node.job_name != MAP or not isinstance(node.data, dict):
        return node.data
    return {**node.data, "over_queue": queues[node.data["over"]]}


def map_problem(nodes: Sequence[Node]) -> str | None:
    """Return why these nodes' maps can't be in one graph; None if they can."""
    maps = {node.name: node for node in nodes if node.job_name == MAP}
    for node in maps.values():
        if not isinstance(node.data, dict) or node.data.get("over") not in node.deps:
            return f"Node {node.name!r} maps over a node for which it does not wait; add it with `map` of a builder."
        if (over := node.data["over"]) in maps:
            return (
                f"Node {node.name!r} maps over node {over!r}, which maps itself and returns no list; put a node "
                "between them that returns one, as from `job.map_results`."
            )
        if other := next((each.name for each in nodes if element_index(node.name, each.name) is not None), None):
            return f"Node {other!r} has the name of an element of node {node.name!r}; choose another name."
    return None
