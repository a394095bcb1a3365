"""Notifications: outcomes of ended jobs for the jobs that depend on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from orchestration_queue.protocol.call import Conversation, Operation, Reply, all_good, texts
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys

__all__ = [
    "MOST_CHANGES",
    "MOST_NODES",
    "NONE_PENDING",
    "Notification",
    "PendingNotifications",
    "Propagated",
    "notify",
    "notify_all",
    "propagate",
    "read_notifications",
    "read_propagated",
]

MOST_NODES = 100
"""Maximum nodes and ids per call, so that it blocks the server for less than 10 ms: a node takes 25 to 40 us."""

MOST_CHANGES = 100
"""Maximum jobs that one call changes beyond those it names."""


@dataclass(frozen=True, slots=True)
class Notification:
    """The outcome of an ended job, for one of its dependents.

    Attributes:
        queue: The dependent's queue.
        dependent: The dependent's id.
        member: The ended job's name among the dependent's dependencies.
        outcome: ``success``, ``failed``, ``upstream_failed`` or ``skipped``.
    """

    queue: str
    dependent: str
    member: str
    outcome: str


@dataclass(frozen=True, slots=True)
class PendingNotifications:
    """Notifications that a call left to its caller. Sending them twice is harmless.

    Attributes:
        news: Notifications for jobs of other queues, which may be on other servers.
        job_ids: Ended jobs of the call's own queue whose dependents are still to be notified: each call is bounded.
    """

    news: tuple[Notification, ...] = ()
    job_ids: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.news or self.job_ids)

    def __add__(self, other: PendingNotifications) -> PendingNotifications:
        return PendingNotifications(self.news + other.news, self.job_ids + other.job_ids)


NONE_PENDING = PendingNotifications()
"""No notifications are left to send."""


def read_notifications(news: Reply, job_ids: Reply) -> PendingNotifications:
    """Read the notifications that a function leaves to its caller: queue, dependent, member, outcome, ...; and ids."""
    if not (news or job_ids):
        return NONE_PENDING
    return PendingNotifications(
        tuple(Notification(*one) for one in zip(*[iter(texts(news))] * 4, strict=True)), tuple(texts(job_ids))
    )


@dataclass(frozen=True, slots=True)
class Propagated:
    """The effect of outcomes on the jobs that wait for them.

    Attributes:
        decisions: ``run``, ``upstream_failed`` or ``skipped`` by the id of each job that was decided.
        pending: Notifications still to send.
    """

    decisions: dict[str, str] = field(default_factory=dict)
    pending: PendingNotifications = NONE_PENDING


def read_propagated(reply: Reply) -> Propagated:
    """Read a function's decisions, and the notifications that it leaves to its caller."""
    decided, news, job_ids = reply
    words = iter(texts(decided))
    return Propagated(dict(zip(words, words, strict=True)), read_notifications(news, job_ids))


def propagate(
    keys: QueueKeys, now_ms: int, *, job_ids: Sequence[str] = (), news: Sequence[Notification] = ()
) -> Operation[Propagated]:
    """Notify dependents of ended jobs. A repeated notification counts once.

    Args:
        keys: The queue.
        now_ms: Epoch milliseconds by the caller's clock.
        job_ids: Ended jobs of the queue, whose dependents to notify; jobs that have not ended are skipped.
        news: Outcomes of jobs of other queues, for dependents in this queue.
    """
    call = oq1.propagate(
        keys,
        now_ms=now_ms,
        limit=MOST_CHANGES,
        news=[oq1.ForeignOutcome(dependent=one.dependent, member=one.member, outcome=one.outcome) for one in news],
        job_ids=job_ids,
    )
    return Operation(call, read_propagated)


def notify(
    keys: QueueKeys, pending: PendingNotifications, now_ms: int
) -> Iterator[tuple[QueueKeys, Operation[Propagated]]]:
    """Yield the operations that send what a call on the queue of ``keys`` left pending, each with its queue.

    They can leave notifications pending themselves; :func:`notify_all` sends these, too.
    """
    for start in range(0, len(pending.job_ids), MOST_NODES):
        yield keys, propagate(keys, now_ms, job_ids=pending.job_ids[start : start + MOST_NODES])
    ordered = sorted(pending.news, key=lambda one: one.queue)
    for queue, group in groupby(ordered, key=lambda one: one.queue):
        there, news = QueueKeys(queue, keys.prefix), list(group)
        for start in range(0, len(news), MOST_NODES):
            yield there, propagate(there, now_ms, news=news[start : start + MOST_NODES])


def notify_all(left: Sequence[tuple[QueueKeys, PendingNotifications]], now_ms: int) -> Conversation[None]:
    """Send all notifications that calls on these queues left pending, and those that result from them.

    Raises:
        ServerError: A queue refused a notification. Others in the same exchange were sent.
    """
    while todo := [each for keys, pending in left for each in notify(keys, pending, now_ms)]:
        replies = all_good((yield [operation.call for _, operation in todo]))
        left = [(keys, operation.read(reply).pending) for (keys, operation), reply in zip(todo, replies, strict=True)]
