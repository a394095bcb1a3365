"""Broadcasts for the workers of a subscription: read, start and settle messages, and take over stalled ones.

The pending list of the subscription's own consumer group holds its unsettled messages, and a hash beside each message's
record its state of that message. The record itself is shared by all subscriptions, and contains what the last of them
wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from orchestration_queue.errors import STALLED_REASON
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import (
    ChildrenWait,
    Completion,
    Delivery,
    Failure,
    Lease,
    Postponement,
    Settlement,
    Suspension,
)
from orchestration_queue.protocol.operations.dead_letters import add_dead_letter
from orchestration_queue.protocol.operations.exchanges import Renewal, notice
from orchestration_queue.protocol.operations.job_records import PRIORITY_SHIFT
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.protocol.record import JobRecord, pairs

__all__ = [
    "Member",
    "Message",
    "Report",
    "Stalled",
    "claim",
    "entry",
    "hand_on",
    "last_sign",
    "read_message",
    "stalled",
]

_REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Message(Delivery):
    """A message that was delivered to this worker and has not started.

    Attributes:
        subject: The subject of the message.
        retry_of: The only subscription that receives it, if it is a retry; otherwise ''.
    """

    subject: str
    retry_of: str


@dataclass(frozen=True, slots=True)
class Report:
    """The calls that report one outcome; the reply to the last one is the verdict."""

    calls: tuple[Call, ...]
    read: Callable[[Reply], Verdict]


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of a subscription, and its calls.

    Attributes:
        keys: The broadcast's keys.
        subscription: The consumer group.
        consumer: The worker's name in the group.
    """

    keys: QueueKeys
    subscription: str
    consumer: str

    def ledger(self, job_id: str) -> str:
        """Return the key of this subscription's attempts of a message, and of how often it stalled."""
        return f"{self.keys.job(job_id)}:sub:{self.subscription}"

    def read(self, count: int, block_ms: int | None = None) -> Operation[list[Message]]:
        """Take up to ``count`` new messages; wait up to ``block_ms`` for the first, or not at all without it."""
        wait = () if block_ms is None else ("BLOCK", block_ms)
        return self._read(count, *wait, position=">")

    def read_pending(self, count: int = 1000) -> Operation[list[Message]]:
        """Read the messages that were delivered to this worker and are neither settled nor taken over."""
        return self._read(count, position="0")

    def _read(self, count: int, *wait: str | int, position: str) -> Operation[list[Message]]:
        stream = self.keys.stream
        words = ("GROUP", self.subscription, self.consumer, "COUNT", count, *wait, "STREAMS", stream, position)

        def read(reply: Reply) -> list[Message]:
            return [read_message(text(entry_id), fields) for entry_id, fields in (reply[0][1] if reply else ())]

        return Operation(Call("XREADGROUP", args=words, near=stream), read)

    def acknowledge(self, entry_ids: Sequence[str]) -> Call:
        """Acknowledge entries for this subscription. They stay on the stream for others."""
        return Call("XACK", (self.keys.stream,), (self.subscription, *entry_ids))

    def holds(self, entry_id: str) -> Operation[bool]:
        """Read whether an entry of the subscription is still pending.

        An entry that was taken over from a stalled worker no longer is: its message continues under another entry.
        """
        return Operation(Call("XPENDING", (self.keys.stream,), (self.subscription, entry_id, entry_id, 1)), bool)

    def room(self) -> Operation[int]:
        """Read how many more messages this subscription may start under the concurrency limit; -1 without one."""
        call = glidemq.check_concurrency(self.keys, group=self.subscription)
        return Operation(call, integer)

    def start(self, message: Delivery, now_ms: int) -> tuple[Call, Call]:
        """Ask how many attempts this subscription has made, and start a message."""
        job_id = message.job_id
        active = glidemq.move_to_active(
            stream_key=self.keys.stream,
            job_key=self.keys.job(job_id),
            now_ms=now_ms,
            entry_id=message.entry_id,
            group=self.subscription,
            job_id=job_id,
            broadcast=True,
        )
        return Call("HGET", (self.ledger(job_id),), ("a",)), active

    @staticmethod
    def read_start(message: Delivery, attempts: Reply, started: Reply) -> Lease | str:
        """Read the replies to :meth:`start`: the lease, or the wire's word for why it was refused."""
        if not isinstance(started, list):
            return text(started)
        made = {"attemptsMade": "0" if attempts is None else text(attempts)}
        return Lease(JobRecord(message.job_id, pairs(started) | made), message.entry_id)

    def requeue(self, message: Message) -> list[Call]:
        """Add a message again for this subscription only; twice if the worker dies in between, but at least once."""
        return [self._again(message.job_id, message.subject), self.acknowledge([message.entry_id])]

    def _again(self, job_id: str, subject: str) -> Call:
        fields = ("jobId", job_id, "name", subject, "retryGroup", self.subscription)
        return Call("XADD", (self.keys.stream,), ("*", *fields))

    # Outcomes

    def settle(
        self,
        settlement: Settlement,
        now_ms: int,
        *,
        dead_letter: str = "",
        skip_events: bool = False,
        skip_metrics: bool = False,
    ) -> Report:
        """Report an outcome of this subscription; a message that fails for good goes to ``dead_letter``."""
        match settlement:
            case Completion(lease, result):
                done = self._complete(lease, result, now_ms, skip_events=skip_events, skip_metrics=skip_metrics)
                return Report((done, *self._notices(lease.record)), lambda _: Verdict.COMPLETED)
            case Failure(lease, reason, max_attempts, backoff_ms):
                failing = self.fail(lease, reason, now_ms, max_attempts, backoff_ms)
                # The letter first: adding it again has no effect, but a failure without one would stay.
                is_last = lease.record.attempts_made + 1 >= max_attempts and reason != _REVOKED
                letters = [self._letter(settlement, dead_letter, now_ms)] if dead_letter and is_last else []
                return Report((*letters, failing), _read_failure)
            case Postponement(lease, until_ms, ""):
                return Report(self._postpone(lease, until_ms), lambda _: Verdict.DELAYED)
            case _:
                return Report((self.fail(settlement.lease, _refusal(settlement), now_ms),), _read_failure)

    def _complete(self, lease: Lease, result: str, now_ms: int, *, skip_events: bool, skip_metrics: bool) -> Call:
        # Of the two functions that complete, only this one takes the attempt's start: the record's `processedOn` may be
        # another subscription's. It fetches nothing in a broadcast.
        return glidemq.complete_and_fetch_next(
            self.keys,
            job_key=self.keys.job(lease.job_id),
            metrics_key=self.keys.metrics_completed,
            job_id=lease.job_id,
            entry_id=lease.entry_id,
            returnvalue=result,
            now_ms=now_ms,
            group=self.subscription,
            consumer=self.consumer,
            broadcast=True,
            processed_on_hint=str(lease.taken_ms),
            skip_events=skip_events,
            skip_metrics=skip_metrics,
        )

    def _notices(self, record: JobRecord) -> list[Call]:
        """Return the notification of the parent of a message that another client added as a child."""
        if not (record.parent_id and record.parent_queue):
            return []
        return [notice(self.keys, record.parent_queue, record.parent_id, self.keys.member(record.id))]

    def fail(self, of: Lease | Delivery, reason: str, now_ms: int, max_attempts: int = 0, backoff_ms: int = 0) -> Call:
        """Fail an attempt of this subscription, whether it started or not."""
        return glidemq.fail(
            self.keys,
            job_key=self.keys.job(of.job_id),
            metrics_key=self.keys.metrics_failed,
            job_id=of.job_id,
            entry_id=of.entry_id,
            failed_reason=reason,
            now_ms=now_ms,
            max_attempts=max_attempts,
            backoff_ms=backoff_ms,
            group=self.subscription,
            broadcast=True,
        )

    def revoked(self, message: Delivery, now_ms: int) -> Call:
        """Fail a message that was revoked before this subscription started it."""
        return self.fail(message, _REVOKED, now_ms)

    def _letter(self, failure: Failure, to: str, now_ms: int) -> Call:
        """Return the call that adds the dead letter, under an id derived from the attempt."""
        record, reason = failure.lease.record, failure.reason
        data = record.fields.get("data", "")
        with suppress(ValueError):
            data = json.loads(data)
        about = {
            "originalQueue": self.keys.queue,
            "originalJobId": record.id,
            "data": data,
            "failedReason": reason,
            "attemptsMade": record.attempts_made,
        }
        run = f"{self.keys.base}:{record.id}:{self.subscription}:{failure.lease.taken_ms}"
        letter_id = f"dead.{hashlib.sha256(run.encode()).hexdigest()[:32]}"
        return add_dead_letter(QueueKeys(to, self.keys.prefix), letter_id, record.name, dump_json(about), now_ms)

    def _postpone(self, lease: Lease, until_ms: int) -> tuple[Call, Call]:
        # The wire's function for this would return the message to every subscription.
        due = lease.record.priority * PRIORITY_SHIFT + until_ms
        # Scheduled before it is acknowledged: at worst it is in both places, never in neither.
        later = Call("ZADD", (self.keys.scheduled,), (due, f"{lease.job_id}||{self.subscription}"))
        return later, self.acknowledge([lease.entry_id])

    # Leases

    def look(self, lease: Lease) -> tuple[Call, Call]:
        """Ask whether a lease is still ours, and whether its message exists and was not revoked."""
        wanted = Call("HMGET", (self.keys.job(lease.job_id),), ("state", "revoked"))
        return self.holds(lease.entry_id).call, wanted

    @staticmethod
    def read_look(held: Reply, wanted: Reply) -> Renewal:
        """Read the replies to :meth:`look`."""
        state, revoked = wanted
        if not held or state is None:
            return Renewal.LOST
        return Renewal.REVOKED if revoked == b"1" else Renewal.RENEWED

    def keep(self, lease: Lease, now_ms: int) -> Call:
        """Record that a message is still being processed."""
        return Call("HSET", (self.keys.job(lease.job_id),), ("lastActive", now_ms))


def read_message(entry_id: Reply, fields: Reply) -> Message:
    """Return an entry of the stream as a message."""
    # An entry that was trimmed off is still pending, without fields.
    known = pairs(fields or ())
    return Message(known.get("jobId", ""), text(entry_id), known.get("name", ""), known.get("retryGroup", ""))


def _read_failure(reply: Reply) -> Verdict:
    return Verdict.RETRYING if text(reply) == "retrying" else Verdict.FAILED


def _refusal(settlement: Settlement) -> str:
    """Return why a message can't be settled like this."""
    match settlement:
        case Postponement():
            what = "get other data when it is postponed"
        case ChildrenWait():
            what = "wait for children"
        case Suspension():
            what = "be suspended"
        case _:
            what = "hold back a group"
    return f"A message can't {what}, because all subscriptions share its record; add a job to a queue for that."


_LEDGER_TTL_S = 86_400


@dataclass(frozen=True, slots=True)
class Stalled:
    """A pending entry of a subscription, and how long it has been idle."""

    entry_id: str
    idle_ms: int


def stalled(member: Member, min_ms: int, after: str = "-", count: int = 100) -> Operation[list[Stalled]]:
    """Read a page of entries that have been pending for at least this long, oldest first."""
    words = (member.subscription, "IDLE", min_ms, after, "+", count)

    def read(reply: Reply) -> list[Stalled]:
        return [Stalled(text(entry_id), int(idle_ms)) for entry_id, _, idle_ms, _ in reply]

    return Operation(Call("XPENDING", (member.keys.stream,), words), read)


def entry(member: Member, entry_id: str) -> Operation[Message | None]:
    """Read one entry of the stream; None if it was trimmed."""

    def read(reply: Reply) -> Message | None:
        return read_message(*reply[0]) if reply else None

    return Operation(Call("XRANGE", (member.keys.stream,), (entry_id, entry_id)), read)


def last_sign(member: Member, message: Message) -> Operation[tuple[Lease, int] | None]:
    """Read a message's lease and when it was last renewed, epoch ms; None if the message was removed."""
    names = ("state", "lastActive", "opts")

    def read(reply: Reply) -> tuple[Lease, int] | None:
        if reply[0] is None:
            return None
        known = {name: text(value) for name, value in zip(names, reply, strict=True) if value is not None}
        return Lease(JobRecord(message.job_id, known), message.entry_id), int(known.get("lastActive", 0))

    return Operation(Call("HMGET", (member.keys.job(message.job_id),), names), read)


def claim(member: Member, message: Message, idle_ms: int) -> tuple[Call, Call]:
    """Take over an entry unless another worker has, and ask how often its message stalled."""
    # A claim resets the idle time, so that only one of several workers gets past the minimum.
    words = (member.subscription, member.consumer, idle_ms, message.entry_id, "JUSTID")
    return Call("XCLAIM", (member.keys.stream,), words), Call("HGET", (member.ledger(message.job_id),), ("stalls",))


def hand_on(member: Member, message: Message, stalls: int, most: int, now_ms: int) -> list[Call]:
    """Requeue a claimed message for another worker, or fail it if it stalled too often."""
    if stalls >= most:
        return [member.fail(message, STALLED_REASON, now_ms)]
    ledger = member.ledger(message.job_id)
    event = ("*", "event", "stalled", "jobId", message.job_id)  # the next event of a function trims
    return [
        Call("HINCRBY", (ledger,), ("stalls", 1)),
        Call("EXPIRE", (ledger,), (_LEDGER_TTL_S,)),
        *member.requeue(message),
        Call("XADD", (member.keys.events,), event),
    ]
