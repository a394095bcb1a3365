"""Broadcasts, for the workers of a subscription.

Which messages a subscription has not settled is in the pending list of its own consumer group, and its state of a
message in a hash beside the message's record. The record itself is shared by all subscriptions, and contains what the
last of them wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

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

__all__ = ["Member", "Message", "Stalled", "Told", "claim", "entry", "hand_on", "last_sign", "read_message", "stalled"]

_REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Message(Delivery):
    """A message handed to this worker that has not started.

    Attributes:
        subject: What it was published under.
        retry_of: The one subscription it is for, when it is a retry; else ''.
    """

    subject: str
    retry_of: str


@dataclass(frozen=True, slots=True)
class Told:
    """The calls that report one outcome; the last one returns the verdict."""

    calls: tuple[Call, ...]
    read: Callable[[Reply], Verdict]


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of a subscription, and all it says to the server.

    Attributes:
        keys: The broadcast's keys.
        subscription: The consumer group.
        consumer: The worker's name in it.
    """

    keys: QueueKeys
    subscription: str
    consumer: str

    def ledger(self, job_id: str) -> str:
        """Return what this subscription knows of one message: its attempts, and how often a worker was lost with it."""
        return f"{self.keys.job(job_id)}:sub:{self.subscription}"

    def read(self, count: int, block_ms: int | None = None) -> Operation[list[Message]]:
        """Take up to ``count`` new messages, waiting up to ``block_ms`` for the first; without it, not waiting."""
        wait = () if block_ms is None else ("BLOCK", block_ms)
        return self._read(count, *wait, position=">")

    def read_pending(self, count: int = 1000) -> Operation[list[Message]]:
        """Return the messages that were handed to this worker and are neither settled nor taken away."""
        return self._read(count, position="0")

    def _read(self, count: int, *wait: str | int, position: str) -> Operation[list[Message]]:
        stream = self.keys.stream
        words = ("GROUP", self.subscription, self.consumer, "COUNT", count, *wait, "STREAMS", stream, position)

        def read(reply: Reply) -> list[Message]:
            return [read_message(text(entry_id), fields) for entry_id, fields in (reply[0][1] if reply else ())]

        return Operation(Call("XREADGROUP", args=words, near=stream), read)

    def done_with(self, entry_ids: Sequence[str]) -> Call:
        """Take entries off the subscription's hands. They stay on the stream, for the others."""
        return Call("XACK", (self.keys.stream,), (self.subscription, *entry_ids))

    def holds(self, entry_id: str) -> Operation[bool]:
        """Whether the subscription's entry is still pending.

        An entry that was taken over from a stalled worker no longer is: its message continues under another entry.
        """
        return Operation(Call("XPENDING", (self.keys.stream,), (self.subscription, entry_id, entry_id, 1)), bool)

    def room(self) -> Operation[int]:
        """How many more messages the limit on active ones lets this subscription start; -1 without a limit."""
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
        """Return what those two replies say: the lease, or the wire's word for why it was refused."""
        if not isinstance(started, list):
            return text(started)
        made = {"attemptsMade": "0" if attempts is None else text(attempts)}
        return Lease(JobRecord(message.job_id, pairs(started) | made), message.entry_id)

    def requeue(self, message: Message) -> list[Call]:
        """Put a message back for this subscription alone. Twice, when the worker dies in between; never not at all."""
        return [self._again(message.job_id, message.subject), self.done_with([message.entry_id])]

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
    ) -> Told:
        """Report an outcome of this subscription; a message that fails for good goes to ``dead_letter``."""
        match settlement:
            case Completion(lease, result):
                done = self._complete(lease, result, now_ms, skip_events=skip_events, skip_metrics=skip_metrics)
                return Told((done, *self._notices(lease.record)), lambda _: Verdict.COMPLETED)
            case Failure(lease, reason, max_attempts, backoff_ms):
                failing = self.fail(lease, reason, now_ms, max_attempts, backoff_ms)
                is_last = lease.record.attempts_made + 1 >= max_attempts and reason != _REVOKED
                letters = [self._letter(settlement, dead_letter, now_ms)] if dead_letter and is_last else []
                return Told((*letters, failing), _failed)
            case Postponement(lease, until_ms, ""):
                return Told(self._postpone(lease, until_ms), lambda _: Verdict.DELAYED)
            case _:
                return Told((self.fail(settlement.lease, _refusal(settlement), now_ms),), _failed)

    def _complete(self, lease: Lease, result: str, now_ms: int, *, skip_events: bool, skip_metrics: bool) -> Call:
        # This one, of the two functions that complete, can be told when the attempt began: the record's own
        # `processedOn` may be another subscription's. It fetches nothing in a broadcast.
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
        """Return the dead letter, under an id that is the same however often it is sent."""
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
        # The wire's function for this would bring the message back to every subscription.
        due = lease.record.priority * PRIORITY_SHIFT + until_ms
        later = Call("ZADD", (self.keys.scheduled,), (due, f"{lease.job_id}||{self.subscription}"))
        return later, self.done_with([lease.entry_id])

    # Leases

    def look(self, lease: Lease) -> tuple[Call, Call]:
        """Ask whether a lease is still ours, and whether its message is still there and wanted."""
        wanted = Call("HMGET", (self.keys.job(lease.job_id),), ("state", "revoked"))
        return self.holds(lease.entry_id).call, wanted

    @staticmethod
    def read_look(held: Reply, wanted: Reply) -> Renewal:
        """Return what those two replies say."""
        state, revoked = wanted
        if not held or state is None:
            return Renewal.LOST
        return Renewal.REVOKED if revoked == b"1" else Renewal.RENEWED

    def keep(self, lease: Lease, now_ms: int) -> Call:
        """Say that a message is still being worked on."""
        return Call("HSET", (self.keys.job(lease.job_id),), ("lastActive", now_ms))


def read_message(entry_id: Reply, fields: Reply) -> Message:
    """Return an entry of the stream as a message."""
    # An entry that was trimmed off is still pending, without fields.
    known = pairs(fields or ())
    return Message(known.get("jobId", ""), text(entry_id), known.get("name", ""), known.get("retryGroup", ""))


def _failed(reply: Reply) -> Verdict:
    return Verdict.RETRYING if text(reply) == "retrying" else Verdict.FAILED


def _refusal(settlement: Settlement) -> str:
    """Why the job cannot be set aside in this way."""
    match settlement:
        case Postponement():
            what = "get other data when it is postponed"
        case ChildrenWait():
            what = "wait for children"
        case Suspension():
            what = "be suspended"
        case _:
            what = "hold back a group"
    return f"A message cannot {what}: its record is shared by all subscriptions; add a job to a queue for that."


_EVENTS_LENGTH = 1000

_LEDGER_TTL_S = 86_400

_STALLED = "job stalled more than maxStalledCount"


@dataclass(frozen=True, slots=True)
class Stalled:
    """An entry in a subscription's hands of which nothing was heard for a while."""

    entry_id: str
    idle_ms: int


def stalled(member: Member, min_ms: int, after: str = "-", count: int = 100) -> Operation[list[Stalled]]:
    """Entries that were handed out so long ago and are not settled, oldest first, a page at a time."""
    words = (member.subscription, "IDLE", min_ms, after, "+", count)

    def read(reply: Reply) -> list[Stalled]:
        return [Stalled(text(entry_id), int(idle_ms)) for entry_id, _, idle_ms, _ in reply]

    return Operation(Call("XPENDING", (member.keys.stream,), words), read)


def entry(member: Member, entry_id: str) -> Operation[Message | None]:
    """One entry of the stream; None when it was trimmed off."""

    def read(reply: Reply) -> Message | None:
        return read_message(*reply[0]) if reply else None

    return Operation(Call("XRANGE", (member.keys.stream,), (entry_id, entry_id)), read)


def last_sign(member: Member, message: Message) -> Operation[tuple[Lease, int] | None]:
    """Return a message's lease by its record, and its last sign of life, epoch ms; None when it was removed."""
    names = ("state", "lastActive", "opts")

    def read(reply: Reply) -> tuple[Lease, int] | None:
        if reply[0] is None:
            return None
        known = {name: text(value) for name, value in zip(names, reply, strict=True) if value is not None}
        return Lease(JobRecord(message.job_id, known), message.entry_id), int(known.get("lastActive", 0))

    return Operation(Call("HMGET", (member.keys.job(message.job_id),), names), read)


def claim(member: Member, message: Message, idle_ms: int) -> tuple[Call, Call]:
    """Take an entry unless another worker has taken it, and ask how often a worker was lost with its message."""
    words = (member.subscription, member.consumer, idle_ms, message.entry_id, "JUSTID")
    return Call("XCLAIM", (member.keys.stream,), words), Call("HGET", (member.ledger(message.job_id),), ("stalls",))


def hand_on(member: Member, message: Message, stalls: int, most: int, now_ms: int) -> list[Call]:
    """Let another worker have a claimed message; or fail it, when a worker was lost with it too often."""
    if stalls >= most:
        return [member.fail(message, _STALLED, now_ms)]
    ledger = member.ledger(message.job_id)
    told = ("MAXLEN", "~", _EVENTS_LENGTH, "*", "event", "stalled", "jobId", message.job_id)
    return [
        Call("HINCRBY", (ledger,), ("stalls", 1)),
        Call("EXPIRE", (ledger,), (_LEDGER_TTL_S,)),
        *member.requeue(message),
        Call("XADD", (member.keys.events,), told),
    ]
