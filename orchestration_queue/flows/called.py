"""Jobs that steps of a running job call: how they are added, how they ended, and how their caller learns of it.

A called job is registered with its caller like a flow's dependency, and the caller waits for the end of all, however
that is. The flow reconciler of the caller's queue reads their ends, too: a notification may get lost, and workers of
other languages send none to other queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from orchestration_queue.errors import UsageError
from orchestration_queue.flows.mapping import MAP
from orchestration_queue.flows.node import Node
from orchestration_queue.flows.stored import outcome_of
from orchestration_queue.options.job import Headers
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Conversation, all_good, chunks, integer
from orchestration_queue.protocol.functions.oq1 import NewJob
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import additions, graphs, job_records
from orchestration_queue.protocol.operations.notifications import Notification, PendingNotifications, notify_all
from orchestration_queue.protocol.operations.steps import CALLER
from orchestration_queue.protocol.operations.worker_signals import wake_for_due
from orchestration_queue.protocol.placement import ParentRef, new_job
from orchestration_queue.protocol.record import JobRecord

__all__ = [
    "ENDS_AT_ONCE",
    "GONE",
    "CalledEnd",
    "add_called",
    "caller_of",
    "check_calls",
    "dump_nodes",
    "is_known",
    "load_nodes",
    "name_called",
    "read_ends",
    "reconcile_calls",
    "ref_of",
]

GONE = "gone"
"""The outcome of a job without a record."""
_NAME_LENGTH = 100
ENDS_AT_ONCE = 50
"""Most called jobs that are read at once."""
_ENDED = ("state", "outcome", "failedReason")
_FIELDS = (*_ENDED, "returnvalue", "failureKind", "failureAttempt", "attemptsMade")
_WAITING = frozenset({"waiting-children", "active", "waiting", "prioritized", "group-waiting"})
_SOON_MS, _LATER_MS = 5_000, 600_000
_JOB_MS = 5
"""How much later the called jobs are read again for each of them."""


class CalledEnd(NamedTuple):
    """How a called job ended, if it has.

    Attributes:
        outcome: ``completed``, ``failed``, ``pending``, or :data:`GONE`.
        payload: Its encoded result, or why it failed.
        kind: The kind of its failure.
    """

    outcome: str
    payload: str = ""
    kind: str = ""


def check_calls(nodes: Sequence[Node]) -> None:
    """Check that nodes can be called by steps.

    Raises:
        UsageError: One waits for others, is mapped, or removes its job before its result is read.
        PayloadError: The data of one are not JSON, or larger than 1 MiB.
    """
    for node in nodes:
        if not isinstance(node, Node):
            raise UsageError(f"A step can't call {node!r}; pass `Node(...)`, or `task.node('name')(...)`.")
        if node.waits_for or node.job_name == MAP:
            raise UsageError(
                f"Step {node.name!r} calls a node that waits for others, which only flows have; call a node without "
                "deps, and call the others first."
            )
        if node.options.remove_on_complete is not None or node.options.remove_on_fail is not None:
            raise UsageError(
                f"Step {node.name!r} calls a job that is removed when it ends, but its result is read later; drop "
                "remove_on_complete and remove_on_fail, or use task.with_options()."
            )
        codec.encode(node.data, f"The data of step {node.name!r}")


_NODES = TypeAdapter(list[Node])


def dump_nodes(nodes: Sequence[Node]) -> Any:
    """Return nodes as JSON."""
    return _NODES.dump_python(list(nodes), mode="json", exclude_defaults=True)


def load_nodes(nodes: Sequence[Any]) -> list[Node]:
    """Return nodes, which may be as JSON."""
    return _NODES.validate_python(list(nodes))


def name_called(parent: ParentRef, node: Node, token: str) -> str:
    """Return the full name of the job that a step calls.

    Args:
        parent: The job that calls it.
        node: What it calls, in that job's queue unless it says otherwise.
        token: Distinguishes it from jobs that the step called before, in this or a removed job of the same id.
    """
    queue = QueueKeys(node.queue, parent.keys.prefix) if isinstance(node.queue, str) else parent.keys
    return queue.member(f"{parent.job_id[:_NAME_LENGTH]}-{node.name[:_NAME_LENGTH]}-{token}")


def ref_of(member: str) -> ParentRef:
    """Return the job with this full name, from :func:`name_called`."""
    found = ParentRef.of_member(member)
    if found is None:
        raise UsageError(f"{member!r} is not the name of a called job; forget the step with job.forget_step().")
    return found


def add_called(
    parent: ParentRef, calls: Sequence[tuple[Node, str]], headers: Mapping[str, str], now_ms: int
) -> Conversation[None]:
    """Add jobs that steps call, which the caller's record says already. Sent again, it adds what is missing.

    Args:
        parent: The job that calls them.
        calls: What to run, and the full name of its job.
        headers: The headers of that job, which those get unless their options set the same names.
        now_ms: Epoch milliseconds by the caller's clock.

    Raises:
        ServerError: The server refused one.
    """
    ordered = sorted(calls, key=lambda call: ref_of(call[1]).keys.queue)
    for _, group in groupby(ordered, key=lambda call: ref_of(call[1]).keys.queue):
        for some in chunks(list(group), graphs.MOST_NODES):
            yield from _add_some(parent, some, headers, now_ms)


def _add_some(
    parent: ParentRef, calls: Sequence[tuple[Node, str]], headers: Mapping[str, str], now_ms: int
) -> Conversation[None]:
    keys = ref_of(calls[0][1]).keys
    nodes = [graphs.GraphNode(_new_job(node, member, headers, now_ms)) for node, member in calls]
    awaited = [graphs.OutsideDependent(place, parent) for place in range(len(nodes))]
    operation = graphs.submit_graph(keys, graphs.Graph(nodes, awaited_by=awaited), now_ms)
    wakes = any(additions.is_unannounced(node.options) for node, _ in calls)
    waking = [wake_for_due(keys, now_ms)] if wakes else []
    submitted = operation.read(all_good((yield [operation.call, *waking]))[0])
    yield from notify_all([(keys, submitted.pending)], now_ms)


def _new_job(node: Node, member: str, headers: Mapping[str, str], now_ms: int) -> NewJob:
    options = node.options.at(now_ms)
    merged = Headers({**headers, **options.headers})
    options = options.model_copy(update={"job_id": ref_of(member).job_id, "headers": merged})
    return new_job(node.job_name, codec.encode(node.data, f"The data of step {node.name!r}"), options, now_ms)


def read_ends(members: Sequence[str]) -> Conversation[list[CalledEnd]]:
    """Return how the first of some called jobs ended: at most 50, whose results together are about 1 MiB at most."""
    wanted = [(ref.keys, ref.job_id) for ref in map(ref_of, members[:ENDS_AT_ONCE])]
    sizes = all_good((yield [Call("HSTRLEN", (keys.job(job_id),), ("returnvalue",)) for keys, job_id in wanted]))
    fitting = sum(1 for total in accumulate(map(integer, sizes)) if total <= codec.MAX_PAYLOAD_BYTES)
    return list(map(_end_of, (yield from job_records.jobs(wanted[: max(1, fitting)], _FIELDS))))


def _end_of(record: JobRecord | None) -> CalledEnd:
    if record is None:
        return CalledEnd(GONE)
    if not record.is_finished:
        return CalledEnd("pending")
    if record.state == "completed":
        return CalledEnd("completed", record.fields.get("returnvalue", "null"))
    return CalledEnd("failed", record.failed_reason or "", record.failure_kind or "")


def is_known(record: JobRecord, member: str) -> bool:
    """Whether a job's record says that a called job has ended."""
    return f"depdone:{member}" in record.fields or f"depend:{member}" in record.fields


def caller_of(flow_id: str) -> str | None:
    """Return the job whose called jobs are due for a check; None if that is a flow."""
    return flow_id.removeprefix(CALLER) if flow_id.startswith(CALLER) else None


def reconcile_calls(keys: QueueKeys, job_id: str, now_ms: int) -> Conversation[int | None]:
    """Notify a job of the ends of the jobs that it waits for; a job without a record counts as failed.

    Returns:
        Epoch milliseconds of the next check; None if the job has ended.
    """
    (record,) = yield from job_records.jobs([(keys, job_id)])
    if record is None or record.is_finished:
        return None
    if record.state != "waiting-children":
        return now_ms + (_SOON_MS if record.state in _WAITING else _LATER_MS)
    refs = yield from job_records.children(keys, job_id)
    open_refs = [ref for ref in refs if not is_known(record, ref.member)]
    # If all ends are known, the caller was not resumed: a repeated one makes the server decide again.
    asked = open_refs or refs
    ends = yield from job_records.jobs([(ref.keys, ref.job_id) for ref in asked], _ENDED)
    news = tuple(_news(keys, job_id, asked, ends))
    yield from notify_all([(keys, PendingNotifications(news))], now_ms)
    return now_ms + max(_SOON_MS, _JOB_MS * len(refs))


def _news(
    keys: QueueKeys, job_id: str, refs: Sequence[ParentRef], records: Sequence[JobRecord | None]
) -> Iterator[Notification]:
    for ref, record in zip(refs, records, strict=True):
        if record is None or record.is_finished:
            outcome = "failed" if record is None else outcome_of(record)
            yield Notification(keys.queue, job_id, ref.member, "success" if outcome == "completed" else outcome)
