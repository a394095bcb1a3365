"""The elements of mapped nodes, as stored on the server: as nodes, as states, as results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestration_queue.errors import JobNotFoundError, StateError, UsageError
from orchestration_queue.flows.mapping import MAP, element, element_index, group_of
from orchestration_queue.flows.record import RecordedNode, split_job_id
from orchestration_queue.flows.stored import FlowJob, StoredFlow
from orchestration_queue.protocol.call import Call, Conversation, all_good, optional_text, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = [
    "PAGE",
    "MappedResults",
    "element_names",
    "ends",
    "find_results",
    "forget_maps",
    "list_of",
    "maps",
    "page",
    "with_elements",
]

PAGE: Final = 500
"""Elements read or added per exchange."""


def maps(job: FlowJob) -> bool:
    """Whether a node is mapped over a list."""
    return job.node.task == MAP


def element_names(job: FlowJob) -> list[str]:
    """Return the names of a node's elements, in order, in a flow from :func:`with_elements`."""
    return [name for name in job.node.deps if element_index(job.name, name) is not None]


def _element_names(job: FlowJob, members: Iterable[str]) -> list[str]:
    start = job.keys.member(job.job_id)
    indexes = [index for member in members if (index := element_index(start, member)) is not None]
    return [element(job.name, index) for index in sorted(indexes)]


def with_elements(flow: StoredFlow) -> Conversation[StoredFlow]:
    """Return the flow with the elements added so far as nodes, for which their mapped nodes wait.

    One exchange, and none for a flow without mapped nodes.
    """
    mapped = [job for job in flow.jobs.values() if maps(job)]
    if not mapped:
        return flow
    replies = all_good((yield [Call("SMEMBERS", (job.keys.deps(job.job_id),)) for job in mapped]))
    found = {job.name: _element_names(job, texts(reply)) for job, reply in zip(mapped, replies, strict=True)}
    nodes: dict[str, RecordedNode] = {}
    for name, node in flow.record.nodes.items():
        names = found.get(name, [])
        nodes.update((each, RecordedNode(each, node.queue, (), each)) for each in names)
        nodes[name] = replace(node, deps=(*node.deps, *names))
    return StoredFlow.of(flow.id, flow.keys, replace(flow.record, nodes=nodes))


def forget_maps(flow: StoredFlow) -> Iterable[Call]:
    """Remove the limits of the elements."""
    for job in filter(maps, flow.jobs.values()):
        group = group_of(job.job_id)
        yield Call("DEL", (job.keys.named(f"group:{group}"),))
        yield Call("HDEL", (job.keys.named("ordering"),), (group,))


@dataclass(frozen=True, slots=True)
class MappedResults:
    """Where the results of a mapped node's elements are.

    Attributes:
        ref: The node's own job.
        count: How many elements it had.
    """

    ref: ParentRef
    count: int


def find_results(keys: QueueKeys, job_id: str, node: str) -> Conversation[MappedResults]:
    """Find the elements of a mapped node that this job waits for. Two exchanges.

    Raises:
        UsageError: The job doesn't wait for such a node, or the node is not mapped.
        StateError: The node has not completed, or no longer exists.
    """
    refs = yield from job_records.children(keys, job_id)
    mine = split_job_id(job_id)
    ref = next((ref for ref in refs if mine and split_job_id(ref.job_id) == (mine[0], node)), None)
    if ref is None:
        raise UsageError(
            f"Job {job_id!r} doesn't wait for node {node!r}, whose results may not exist yet; add it to the deps."
        )
    (found,) = yield from job_records.jobs([(ref.keys, ref.job_id)], ("name", "state", "returnvalue"))
    if found is not None and found.name != MAP:
        raise UsageError(f"Node {node!r} is not mapped; read its result with `upstream_results`.")
    if found is None or found.state is not JobState.COMPLETED:
        state = "gone" if found is None else found.state
        raise StateError(f"Node {node!r} is {state}, so its elements have no results; let it complete first.")
    return MappedResults(ref, found.result["count"])


def page(results: MappedResults, start: int, default: Any = None) -> Conversation[list[Any]]:
    """Return up to 500 results of elements, in order, from the element ``start`` on. One exchange.

    Args:
        results: Where they are.
        start: The first element.
        default: Replaces the result of an element that failed.

    Raises:
        JobNotFoundError: An element's job was removed.
    """
    ref = results.ref
    indexes = range(start, min(start + PAGE, results.count))
    wanted = [(ref.keys, element(ref.job_id, index)) for index in indexes]
    records = (yield from job_records.jobs(wanted, ("state", "returnvalue"))) if wanted else []
    values = []
    for (keys, job_id), record in zip(wanted, records, strict=True):
        if record is None:
            raise JobNotFoundError(keys.queue, job_id)
        values.append(record.result if record.state is JobState.COMPLETED else default)
    return values


def list_of(keys: QueueKeys, job_id: str) -> Conversation[str | None]:
    """Return the list that a job returned, encoded; None if it has no result, or no longer exists. One exchange."""
    (reply,) = all_good((yield [Call("HGET", (keys.job(job_id),), ("returnvalue",))]))
    return optional_text(reply)


def ends(keys: QueueKeys, job_id: str, start: int, count: int) -> Conversation[Sequence[tuple[str, JobRecord | None]]]:
    """Return job ids and outcome fields of up to 500 of a node's elements. One exchange."""
    ids = [element(job_id, index) for index in range(start, min(start + PAGE, count))]
    records = yield from job_records.jobs([(keys, one) for one in ids], ("state", "failedReason"))
    return list(zip(ids, records, strict=True))
