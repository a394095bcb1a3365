"""Dead letters: jobs that failed for good, kept as ordinary jobs of another queue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from orchestration_queue.errors import InvalidOptionError, PayloadError
from orchestration_queue.options import placement_from_wire, wire_number
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply, all_good, text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control, job_records
from orchestration_queue.protocol.operations.additions import EncodedData, NewJob
from orchestration_queue.protocol.operations.job_search import KIND_FIELDS
from orchestration_queue.protocol.record import JobRecord, entry_job_id

__all__ = [
    "DeadLetter",
    "DeadLetterPage",
    "LetterGroup",
    "add_dead_letter",
    "count_replay",
    "dead_letter_keys",
    "dead_letter_page",
    "discard",
    "group_letters",
    "last_entry",
    "letter",
    "overdue",
    "post",
    "replay_count",
    "replay_id",
    "replays",
    "uncount_replay",
    "with_kinds",
]

_PAGE = 200
"""Dead letters per exchange: fewer than other jobs, since each carries a payload."""

_ORIGINAL = ("name", "data", "opts")
"""Fields of the original job's record that a replay needs."""

_OWN_OPTIONS = ("jobId", "delay", "deduplication", "parent")
"""Options that apply to one job only, so that a replay omits them."""


def dead_letter_keys(keys: QueueKeys, name: str) -> QueueKeys:
    """Return the keys of the queue that holds the dead letters of another.

    Raises:
        InvalidNameError: The wire cannot carry its name.
        InvalidOptionError: Both are the same queue.
    """
    if name == keys.queue:
        raise InvalidOptionError(
            f"Queue {name!r} cannot keep its own dead letters, since its workers would run them; name another queue."
        )
    return QueueKeys(name, keys.prefix)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that failed for good.

    Attributes:
        id: The dead letter's id, in the dead-letter queue.
        original_queue: The queue in which the job failed.
        original_job_id: The job.
        name: What kind of job it was.
        data: Its payload; as stored, if its codec is unknown here.
        failed_reason: Why its last attempt failed.
        attempts_made: How many attempts had failed before the last.
        added_at: When the dead letter was written, by its writer's clock.
        failure_kind: The kind of failure of its last attempt, as the original job's record says; None when that is not
            kept.
        traceback: Where its last attempt failed, from the same record; None in lists.
    """

    id: str
    original_queue: str
    original_job_id: str
    name: str
    data: Any
    failed_reason: str
    attempts_made: int
    added_at: datetime | None
    failure_kind: str | None = None
    traceback: str | None = None

    @property
    def attempts(self) -> int:
        """How many attempts were made."""
        return self.attempts_made + 1


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """A page of one queue's dead letters.

    Attributes:
        letters: The dead letters.
        records: Their records, in the same order.
        entries: Their ids in the stream, in the same order.
        left_over: Stream ids of jobs that no longer exist.
        after: Where to continue; None at the end.
    """

    letters: tuple[DeadLetter, ...]
    records: tuple[JobRecord, ...]
    entries: tuple[str, ...]
    left_over: tuple[str, ...]
    after: str | None


def last_entry(keys: QueueKeys) -> Conversation[str | None]:
    """Return the id of the dead-letter queue's last stream entry; None if it is empty."""
    (reply,) = all_good((yield [Call("XREVRANGE", (keys.stream,), ("+", "-", "COUNT", 1))]))
    return text(reply[0][0]) if reply else None


def dead_letter_page(keys: QueueKeys, owner: str, after: str = "0", until: str = "+") -> Conversation[DeadLetterPage]:
    """Return the dead letters of ``owner`` among the next 200 jobs of a dead-letter queue, in two exchanges."""
    (reply,) = all_good((yield [Call("XRANGE", (keys.stream,), (f"({after}", until, "COUNT", _PAGE))]))
    entries = [(text(entry_id), entry_job_id(fields)) for entry_id, fields in reply]
    records = yield from job_records.jobs([(keys, job_id) for _, job_id in entries])
    found = [
        (letter, record, entry_id)
        for (entry_id, _), record in zip(entries, records, strict=True)
        if record and (letter := _read(record, owner))
    ]
    return DeadLetterPage(
        tuple(letter for letter, _, _ in found),
        tuple(record for _, record, _ in found),
        tuple(entry_id for _, _, entry_id in found),
        tuple(entry_id for (entry_id, _), record in zip(entries, records, strict=True) if record is None),
        entries[-1][0] if len(entries) == _PAGE else None,
    )


def letter(keys: QueueKeys, owner: str, letter_id: str) -> Conversation[tuple[DeadLetter, JobRecord] | None]:
    """Return a dead letter and its job; None if ``owner`` has no such dead letter."""
    operation = job_records.job(keys, letter_id)
    record = operation.read(*all_good((yield [operation.call])))
    found = record and _read(record, owner)
    if not found or not record:
        return None
    (original,) = yield from job_records.jobs([(QueueKeys(owner, keys.prefix), found.original_job_id)])
    if original is not None and original.failed_reason is not None:
        found = replace(found, failure_kind=original.failure_kind, traceback=original.traceback)
    return found, record


def with_kinds(owner: QueueKeys, letters: Sequence[DeadLetter]) -> Conversation[list[DeadLetter]]:
    """Return dead letters with their kinds of failure, as far as their original jobs are kept."""
    ids = [letter.original_job_id for letter in letters]
    originals = yield from job_records.jobs([(owner, job_id) for job_id in ids], KIND_FIELDS)
    return [
        replace(letter, failure_kind=None if original is None else original.failure_kind)
        for letter, original in zip(letters, originals, strict=True)
    ]


def replays(letters_keys: QueueKeys, owner: QueueKeys, records: list[JobRecord]) -> Conversation[list[NewJob]]:
    """Return the jobs that replay dead letters, with the original jobs' data and options if kept, or the letters'."""
    ids = [str(_envelope(record)["originalJobId"]) for record in records]
    originals = yield from job_records.jobs([(owner, job_id) for job_id in ids], _ORIGINAL)
    return [_replay(letters_keys.queue, record, original) for record, original in zip(records, originals, strict=True)]


def count_replay(counted: str, letter: str, window_ms: int, now_ms: int) -> list[Call]:
    """Count a replay, once per dead letter; the last reply is the number of replays in the window.

    Args:
        counted: The key that keeps the count, see :func:`replay_count`.
        letter: Identifies the dead letter, see :func:`replay_id`.
        window_ms: How long a replay counts.
        now_ms: Epoch milliseconds.
    """
    return [
        Call("ZREMRANGEBYSCORE", (counted,), ("-inf", now_ms - window_ms)),
        Call("ZADD", (counted,), ("NX", now_ms, letter)),
        Call("PEXPIRE", (counted,), (window_ms,)),
        Call("ZCARD", (counted,)),
    ]


def uncount_replay(counted: str, letter: str) -> Call:
    """Remove a replay that will not happen from the count."""
    return Call("ZREM", (counted,), (letter,))


def replay_count(owner: QueueKeys, budget: str) -> str:
    """Return the key that counts a queue's replays within a budget."""
    return owner.named(f"replays:{budget}")


def discard(keys: QueueKeys, letter_ids: list[str], entries: tuple[str, ...]) -> list[Call]:
    """Remove dead letters and their stream entries."""
    removals = [control.remove(keys, letter_id, group="").call for letter_id in letter_ids]
    return [*removals, Call("XDEL", (keys.stream,), entries)] if entries else removals


def _read(record: JobRecord, owner: str) -> DeadLetter | None:
    """Return a job of a dead-letter queue as a dead letter; None when it is not one, or is another queue's."""
    envelope = _envelope(record)
    if envelope.get("originalQueue") != owner or "originalJobId" not in envelope:
        return None
    value, _ = _payload(envelope)
    return DeadLetter(
        id=record.id,
        original_queue=owner,
        original_job_id=str(envelope["originalJobId"]),
        name=record.name,
        data=value,
        failed_reason=str(envelope.get("failedReason") or ""),
        attempts_made=int(wire_number(envelope.get("attemptsMade"))),
        added_at=record.added_at,
    )


def _envelope(record: JobRecord) -> dict[str, Any]:
    try:
        return record.data if isinstance(record.data, dict) else {}
    except PayloadError:
        return {}


def _payload(envelope: dict[str, Any]) -> tuple[Any, str]:
    """Return the original payload and its stored text. In an envelope, the texts of other codecs are quoted."""
    data = envelope.get("data")
    if isinstance(data, str) and codec.is_coded(data):
        try:
            return codec.decode(data), data
        except PayloadError:
            pass  # text that only looks coded, or a codec unknown here: it stays as it is
    return data, dump_json(data)


def replay_id(letters_queue: str, record: JobRecord) -> str:
    """Return the id of the job that replays a dead letter: always the same, so that no replay is added twice.

    It includes the time, since a queue that was removed counts its letters from 1 again.
    """
    letter = f"{letters_queue}:{record.id}:{record.fields.get('timestamp', '')}"
    return f"replay-{hashlib.sha256(letter.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def _replay(letters_queue: str, record: JobRecord, original: JobRecord | None) -> NewJob:
    """Return the job that replays a dead letter, with the original's data and options if kept, or the letter's data."""
    if original is not None and original.name == record.name and "data" in original.fields:
        stored = {name: value for name, value in original.options.items() if name not in _OWN_OPTIONS}
        data_text = original.fields["data"]
    else:
        stored, (_, data_text) = {}, _payload(_envelope(record))
    options = placement_from_wire(stored).model_copy(update={"job_id": replay_id(letters_queue, record)})
    return NewJob(record.name, EncodedData(data_text), options, options_text=dump_json(stored))


_OUTBOX_PAGE = 100


def add_dead_letter(there: QueueKeys, letter_id: str, name: str, data: str, now_ms: int) -> Call:
    """Add a dead letter under an id derived from the attempt, so that adding it twice stores it once."""
    return glidemq.add_job(there, job_name=name, data=data, opts="{}", timestamp_ms=now_ms, custom_id=letter_id)


def overdue(keys: QueueKeys, before_ms: int) -> Operation[list[bytes]]:
    """Read the dead letters stored in the outbox before a time, at most 100, oldest first."""
    call = Call("ZRANGEBYSCORE", (keys.outbox,), ("-inf", before_ms, "LIMIT", 0, _OUTBOX_PAGE))
    return Operation(call, lambda reply: list(reply))


def post(keys: QueueKeys, letters: Sequence[bytes], now_ms: int) -> Conversation[dict[str, str]]:
    """Add dead letters of the outbox to their queues, then remove those that were added; the others are retried last.

    Args:
        keys: The queue whose outbox has them.
        letters: Dead letters as :func:`overdue`, `oq1_exchange` and `oq1_reclaim` return them.
        now_ms: Epoch milliseconds.

    Returns:
        By queue, why it refused a dead letter.
    """
    added, calls = [], []
    for letter in letters:
        to, letter_id, name, data = json.loads(letter.decode(errors="replace"))
        added.append(to)
        calls.append(add_dead_letter(QueueKeys(to, keys.prefix), letter_id, name, data, now_ms))
    replies = yield calls
    problems = {
        letter: (to, str(reply))
        for letter, to, reply in zip(letters, added, replies, strict=True)
        if _is_refusal(reply)
    }
    rest: list[Call] = []
    if taken := [letter for letter in letters if letter not in problems]:
        rest.append(Call("ZREM", (keys.outbox,), tuple(taken)))
    if problems:
        turns = [word for letter in problems for word in (now_ms, letter)]
        # XX: another worker may have delivered the letter meanwhile.
        rest.append(Call("ZADD", (keys.outbox,), ("XX", *turns)))
    all_good((yield rest))
    return dict(problems.values())


def _is_refusal(reply: Reply) -> bool:
    return isinstance(reply, Exception) or text(reply).startswith("ERR:")


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Dead letters that failed alike.

    Attributes:
        kind: The kind of failure; empty if the jobs' records are gone.
        name: The jobs' name; if grouped by kind alone, that of the newest.
        reason: The first line of the reason, likewise.
        letters: The dead letters, newest first.
    """

    kind: str
    name: str
    reason: str
    letters: Sequence[DeadLetter]

    @property
    def newest_at(self) -> datetime | None:
        """When the newest of them was added."""
        return self.letters[0].added_at

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        return [letter.id for letter in self.letters]


def group_letters(letters: Sequence[DeadLetter], by: Literal["kind", "reason"] = "reason") -> list[LetterGroup]:
    """Group dead letters, the largest group first.

    Args:
        letters: The dead letters, oldest first.
        by: ``kind`` for a group per kind of failure; ``reason`` for one per kind, job's name and reason.
    """
    groups: dict[tuple[str, ...], list[DeadLetter]] = {}
    for letter in reversed(letters):
        kind = str(letter.failure_kind or "")
        key = (kind,) if by == "kind" else (kind, letter.name, _first_line(letter))
        groups.setdefault(key, []).append(letter)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return [LetterGroup(key[0], found[0].name, _first_line(found[0]), found) for key, found in ordered]


def _first_line(letter: DeadLetter) -> str:
    return letter.failed_reason.partition("\n")[0]
