"""Job records: one, many, by state, with logs and relatives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import (
    BATCH_SIZE,
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    chunks,
    integer,
    optional_text,
    text,
    texts,
)
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations import shares
from orchestration_queue.protocol.operations.queue_state import groups, last_delivered, without_group
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord, entry_job_id, pairs
from orchestration_queue.states import JobState

__all__ = [
    "PRIORITY_SHIFT",
    "children",
    "children_values",
    "columns",
    "count_children",
    "due_times_ms",
    "exists",
    "job",
    "job_ids",
    "jobs",
    "log_length",
    "logs",
    "parents",
    "sorted_set",
]

_JOBS_PER_CALL = 250
"""Records per call: reading them blocks all other clients for about 2 ms."""

PRIORITY_SHIFT = 2**42
"""The score of a delayed job is its priority times this, plus when it is due, epoch ms."""

_BYTES_PER_CALL = 4 * 1024 * 1024


def job(keys: QueueKeys, job_id: str, fields: Sequence[str] = ()) -> Operation[JobRecord | None]:
    """Read a job's record, with all fields or only those named; None if the job does not exist."""

    def read(reply: Reply) -> JobRecord | None:
        return JobRecord(job_id, pairs(reply)) if reply else None

    def read_some(reply: Reply) -> JobRecord | None:
        present = zip(fields, reply, strict=True)
        return read([word for name, value in present if value is not None for word in (name.encode(), value)])

    if fields:
        return Operation(Call("HMGET", (keys.job(job_id),), tuple(fields)), read_some)
    return Operation(Call("HGETALL", (keys.job(job_id),)), read)


def exists(keys: QueueKeys, job_id: str) -> Operation[bool]:
    """Read whether a job exists."""
    return Operation(Call("EXISTS", (keys.job(job_id),)), bool)


def jobs(wanted: Sequence[tuple[QueueKeys, str]], fields: Sequence[str] = ()) -> Conversation[list[JobRecord | None]]:
    """Return many jobs' records, of any queues, in the given order; None for each job that does not exist."""
    records: list[JobRecord | None] = []
    for piece in chunks(wanted):
        operations = [job(keys, job_id, fields) for keys, job_id in piece]
        replies = yield [operation.call for operation in operations]
        records += [operation.read(reply) for operation, reply in zip(operations, all_good(replies), strict=True)]
    return records


def columns(keys: QueueKeys, job_ids: Sequence[str], fields: Sequence[str]) -> Conversation[list[list[bytes | None]]]:
    """Return some fields of many jobs of a queue: for each field its values, None if a job does not have it.

    A job that no longer exists has no fields. Jobs are in order, except that those beyond some megabytes come last.
    """
    found: list[list[bytes | None]] = [[] for _ in fields]
    names = [oq1.FieldName(field) for field in fields]
    left = list(chunks(job_ids, _JOBS_PER_CALL))
    while left:
        calls = [oq1.read_jobs(keys, most_bytes=_BYTES_PER_CALL, fields=names, job_ids=some) for some in left]
        replies = all_good((yield calls))
        for reply in replies:
            for place, column in enumerate(found):
                column += reply[place :: len(fields)]
        read = [len(reply) // len(fields) for reply in replies]
        # A reply ends after 4 MiB of values; the next exchange reads what is left.
        left = [some[count:] for some, count in zip(left, read, strict=True) if count < len(some)]
    return found


def job_ids(keys: QueueKeys, state: JobState, start: int = 0, end: int = -1) -> Conversation[list[str]]:
    """Return the ids of the jobs in one state, ``start`` to ``end`` inclusive; -1 is the last.

    Waiting jobs are in the order in which workers take them, all others oldest first. Delayed includes prioritized
    jobs, which the wire stores with them.

    Raises:
        UsageError: The wire keeps no list of that state, or the range runs backwards.
    """
    if start < 0 or end < -1:
        raise UsageError(f"The range {start} to {end} is empty; count from 0, and pass -1 for the last job.")
    if state is JobState.WAITING:
        return _read_waiting(keys, start, end)
    if state is JobState.ACTIVE:
        return _active_ids(keys, start, end)
    return _read_ranks(sorted_set(keys, state), start, end)


def due_times_ms(keys: QueueKeys, job_ids: Sequence[str]) -> Conversation[list[int | None]]:
    """Return when each job is due, epoch ms; None for one that is not delayed."""
    found: list[int | None] = []
    for piece in chunks(job_ids):
        (scores,) = all_good((yield [Call("ZMSCORE", (keys.scheduled,), tuple(piece))]))
        found += [None if score is None else int(float(score)) % PRIORITY_SHIFT for score in scores]
    return found


def sorted_set(keys: QueueKeys, state: JobState) -> str:
    """Return the sorted set that holds the jobs of a state.

    Raises:
        UsageError: The wire keeps no such set.
    """
    sets = {
        JobState.DELAYED: keys.scheduled,
        JobState.COMPLETED: keys.completed,
        JobState.FAILED: keys.failed,
        JobState.SUSPENDED: keys.suspended,
    }
    if state not in sets:
        raise UsageError(
            f"The wire keeps no list of {state} jobs; use one of {', '.join(['waiting', 'active', *map(str, sets)])}."
        )
    return sets[state]


def _read_ranks(key: str, start: int, end: int) -> Conversation[list[str]]:
    ids: list[str] = []
    for first in count(start, BATCH_SIZE):
        last = first + BATCH_SIZE - 1
        (reply,) = all_good((yield [Call("ZRANGE", (key,), (first, last if end < 0 else min(last, end)))]))
        ids += texts(reply)
        if len(reply) < BATCH_SIZE or last == end:
            break
    return ids


def _slice(ids: list[str], start: int, end: int) -> list[str]:
    return ids[start:] if end < 0 else ids[start : end + 1]


def _read_waiting(keys: QueueKeys, start: int, end: int) -> Conversation[list[str]]:
    """Return ids from the lists and shares, then those of the stream that were not delivered yet."""
    lists = (keys.priority, keys.lifo)
    described, lengths = yield from groups(keys, *(Call("LLEN", (key,)) for key in lists))
    stop = None if end < 0 else end + 1
    ids: list[str] = []
    for key, length in zip(lists, map(integer, lengths), strict=True):
        until = length if stop is None else min(length, stop)
        for first in range(start, until, BATCH_SIZE):
            # Workers take from the right end.
            span = (-min(first + BATCH_SIZE, until), -1 - first)
            (reply,) = all_good((yield [Call("LRANGE", (key,), span)]))
            ids += reversed(texts(reply))
        start, stop = max(0, start - length), None if stop is None else max(0, stop - length)
    for name in (yield from shares.busy(keys)):
        (length,) = all_good((yield [Call("ZCARD", (keys.share(name),))]))
        if start < length and (stop is None or start < stop):
            ids += yield from _read_ranks(keys.share(name), start, -1 if stop is None else stop - 1)
        start, stop = max(0, start - length), None if stop is None else max(0, stop - length)
    return ids + (yield from _stream_ids(keys, last_delivered(described), start, stop))


def _stream_ids(keys: QueueKeys, after: str, start: int, stop: int | None) -> Conversation[list[str]]:
    """Return the job ids of the entries after one, from ``start`` to before ``stop``."""
    ids: list[str] = []
    for first in count(0, BATCH_SIZE):
        size = BATCH_SIZE if stop is None else min(BATCH_SIZE, stop - first)
        if size <= 0:
            break
        (entries,) = all_good((yield [Call("XRANGE", (keys.stream,), (f"({after}", "+", "COUNT", size))]))
        ids += [entry_job_id(fields) for _, fields in entries[max(0, start - first) :]]
        if len(entries) < BATCH_SIZE:
            break
        after = text(entries[-1][0])
    return ids


def _active_ids(keys: QueueKeys, start: int, end: int) -> Conversation[list[str]]:
    ids: list[str] = []
    from_lists: list[str] = []
    ask_lists = [glidemq.get_active_list_job_ids(keys)]
    after = "-"
    while True:
        page, *listed = yield [Call("XPENDING", (keys.stream,), (GROUP, after, "+", BATCH_SIZE)), *ask_lists]
        for reply in all_good(listed):
            from_lists, ask_lists = texts(reply), []
        pending = [text(entry[0]) for entry in without_group(page, [])]
        replies = yield [Call("XRANGE", (keys.stream,), (entry_id, entry_id)) for entry_id in pending]
        ids += [entry_job_id(reply[0][1]) for reply in all_good(replies) if reply]
        if len(pending) < BATCH_SIZE or 0 <= end < len(ids):
            break
        after = f"({pending[-1]}"
    # Other libraries report a list job twice if it returned through the stream.
    return _slice(list(dict.fromkeys([*ids, *from_lists])), start, end)


def logs(keys: QueueKeys, job_id: str, start: int = 0, end: int = -1) -> Operation[list[str]]:
    """Read the job's log lines, ``start`` to ``end`` inclusive."""
    return Operation(Call("LRANGE", (keys.log(job_id),), (start, end)), texts)


def log_length(keys: QueueKeys, job_id: str) -> Operation[int]:
    """Count the job's log lines."""
    return Operation(Call("LLEN", (keys.log(job_id),)), integer)


def children(keys: QueueKeys, job_id: str) -> Conversation[list[ParentRef]]:
    """Return the jobs that this one waits for, or waited for, in the order of their names."""
    (reply,) = all_good((yield [Call("SMEMBERS", (keys.deps(job_id),))]))
    return [ref for ref in map(ParentRef.of_member, sorted(texts(reply))) if ref is not None]


def count_children(keys: QueueKeys, job_id: str) -> Operation[int]:
    """Count the jobs that a job waits or waited for."""
    return Operation(Call("SCARD", (keys.deps(job_id),)), integer)


def children_values(keys: QueueKeys, job_id: str) -> Conversation[list[tuple[ParentRef, Any]]]:
    """Return the results of the jobs that a job waited for, without those that have none or no longer exist."""
    values: list[tuple[ParentRef, Any]] = []
    refs = yield from children(keys, job_id)
    for piece in chunks(refs):
        replies = all_good((yield [Call("HGET", (ref.keys.job(ref.job_id),), ("returnvalue",)) for ref in piece]))
        stored = zip(piece, map(optional_text, replies), strict=True)
        values += [(ref, codec.decode(text, "The child's result")) for ref, text in stored if text is not None]
    return values


def parents(keys: QueueKeys, job_id: str) -> Conversation[list[ParentRef]]:
    """Return the jobs that wait for this one, in the order of their names."""
    members, named = all_good(
        (
            yield [
                Call("SMEMBERS", (keys.parents(job_id),)),
                Call("HMGET", (keys.job(job_id),), ("parentId", "parentQueue")),
            ]
        )
    )
    if found := [ref for ref in map(ParentRef.of_member, sorted(texts(members))) if ref is not None]:
        return found
    parent_id, queue = map(optional_text, named)
    return [ParentRef(QueueKeys(queue or keys.queue, keys.prefix), parent_id)] if parent_id else []
