"""The exchange that submits a plan, trip by trip, whoever makes them: it may break off anywhere, and start again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from orchestration_queue.errors import StateError
from orchestration_queue.flows.plan import FlowPlan
from orchestration_queue.flows.submission import SUBMITTING, Submission, SubmissionSnapshot, read_submission
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.operations.conversation import Conversation, all_good, chunks
from orchestration_queue.protocol.operations.graphs import Submitted
from orchestration_queue.protocol.operations.notifications import PendingNotifications, notify_all

__all__ = ["Launch", "launch"]

_PARTS_PER_TRIP = 8

_UNKNOWN = SubmissionSnapshot(None, None, is_held=False)


@dataclass(frozen=True, slots=True)
class Launch:
    """A flow that is under way.

    Attributes:
        cursors: By queue, the id of the last event before it was submitted.
        is_new: Whether all its jobs were added just now.
    """

    cursors: Mapping[QueueKeys, str]
    is_new: bool


def launch(plan: FlowPlan, now_ms: int, *, is_fresh: bool) -> Conversation[Launch]:
    """Submit a plan, or what is missing of it. Every trip may be sent twice.

    A graph that is one call takes one trip, others some more: to write the parts, to say that all are there, to release
    the jobs, and to say that all are released.

    Args:
        plan: What to submit.
        now_ms: Epoch milliseconds by the caller's clock.
        is_fresh: Nobody can have used the flow's id before, so there is no need to look.

    Raises:
        StateError: The id stands for another flow, or workers gave the submission up because it took too long.
        ServerError: The server refused a part; nothing has started.
    """
    whole = plan.submission()
    known = _UNKNOWN if is_fresh else (yield from _look(plan))
    if known.record not in (None, whole.record):
        raise StateError(
            f"Flow {plan.flow_id!r} of queue {plan.keys.queue!r} is there with other nodes or options, and an id "
            "stands for one submission; choose another id, or remove that flow first."
        )
    newest = [event_log.last_event_id(keys) for keys in plan.queues]
    wanting = known.state in (None, SUBMITTING)
    writes = whole.writes(now_ms) if wanting else iter(())
    # The record's part goes first, and alone: from then on, others know that there is something to complete or sweep.
    first = list(islice(writes, 1))
    replies = all_good((yield [*(operation.call for operation in newest), *(write.call for write in first)]))
    cursors = {
        keys: operation.read(reply) for keys, operation, reply in zip(plan.queues, newest, replies, strict=False)
    }
    told = [write.read(reply) for write, reply in zip(first, replies[len(newest) :], strict=True)]
    if whole.is_held and wanting:
        for part in chunks([*writes], _PARTS_PER_TRIP):
            replies = all_good((yield [write.call for write in part]))
            told += [write.read(reply) for write, reply in zip(part, replies, strict=True)]
        yield from _commit(plan, whole)
    left = [(part.keys, submitted.pending) for part, submitted in zip(whole.parts, told, strict=False)]
    if whole.is_held and (wanting or known.is_held):
        left += yield from _release(whole, now_ms)
    yield from notify_all(left, now_ms)
    return Launch(cursors, is_new=_count(told) == len(plan.nodes))


def _look(plan: FlowPlan) -> Conversation[SubmissionSnapshot]:
    look = read_submission(plan.keys, plan.flow_id)
    (reply,) = all_good((yield [look.call]))
    return look.read(reply)


def _count(told: Iterable[Submitted]) -> int:
    return sum(len(submitted.new) for submitted in told)


def _commit(plan: FlowPlan, whole: Submission) -> Conversation[None]:
    """Bind the jobs to the flow's limits, and say that nothing is missing: unless it has been swept meanwhile."""
    seen = yield from _look(plan)
    if seen.record is None:
        raise StateError(
            f"Flow {plan.flow_id!r} took so long to submit that workers gave it up and removed it; submit it again."
        )
    if seen.state != SUBMITTING:
        return  # somebody else submitted the same, and was faster
    for calls in chunks(whole.limits):
        all_good((yield calls))
    all_good((yield [whole.commit()]))


def _release(whole: Submission, now_ms: int) -> Conversation[list[tuple[QueueKeys, PendingNotifications]]]:
    releases = list(whole.releases(now_ms))
    replies = all_good((yield [operation.call for _, operation in releases]))
    all_good((yield [whole.done()]))
    return [(keys, operation.read(reply).pending) for (keys, operation), reply in zip(releases, replies, strict=True)]
