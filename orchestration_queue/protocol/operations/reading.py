"""Looking at a queue: jobs, counts, who is in which state, logs and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, text, texts
from orchestration_queue.protocol.events import Event, read_events
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations.steps import HYDRATION, Steps, all_good, chunks
from orchestration_queue.protocol.record import JobRecord, pairs
from orchestration_queue.states import JobState

__all__ = [
    "EVENTS_PAGE",
    "FIRST_EVENT",
    "JobCounts",
    "columns",
    "count",
    "counts",
    "events_since",
    "exists",
    "finished_count",
    "groups",
    "handed_out_until",
    "job",
    "job_ids",
    "jobs",
    "last_delivered",
    "last_event_id",
    "logs",
    "oldest_event",
    "oldest_ready_ms",
    "sorted_set",
]

EVENTS_PAGE = 100
"""Most events of a queue in one read. Fewer are all there are."""
FIRST_EVENT = "0-0"
"""The position before a stream's first entry."""
_JOBS_PER_CALL = 250
"""So many are read in about two milliseconds, for which all other clients wait."""
_BYTES_PER_CALL = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many jobs of a queue are in each state.

    Attributes:
        waiting: Ready to be taken.
        active: With a worker.
        delayed: Due later, prioritized and not yet promoted, or pausing before a retry.
        completed: Finished well and kept.
        failed: Failed for good and kept.
        suspended: Put aside by their handlers until a signal arrives.
    """

    waiting: int
    active: int
    delayed: int
    completed: int
    failed: int
    suspended: int = 0


def job(keys: QueueKeys, job_id: str, fields: Sequence[str] = ()) -> Operation[JobRecord | None]:
    """One job's record, with all its fields or only the named; None when there is no such job."""

    def read(reply: Reply) -> JobRecord | None:
        return JobRecord(job_id, pairs(reply)) if reply else None

    def read_some(reply: Reply) -> JobRecord | None:
        present = zip(fields, reply, strict=True)
        return read([word for name, value in present if value is not None for word in (name.encode(), value)])

    if fields:
        return Operation(Call("HMGET", (keys.job(job_id),), tuple(fields)), read_some)
    return Operation(Call("HGETALL", (keys.job(job_id),)), read)


def exists(keys: QueueKeys, job_id: str) -> Operation[bool]:
    """Whether there is such a job."""
    return Operation(Call("EXISTS", (keys.job(job_id),)), bool)


def jobs(wanted: Sequence[tuple[QueueKeys, str]], fields: Sequence[str] = ()) -> Steps[list[JobRecord | None]]:
    """Many jobs' records, of any queues, in the order asked for; None where there is no such job."""
    records: list[JobRecord | None] = []
    for piece in chunks(wanted):
        operations = [job(keys, job_id, fields) for keys, job_id in piece]
        replies = yield [operation.call for operation in operations]
        records += [operation.read(reply) for operation, reply in zip(operations, all_good(replies), strict=True)]
    return records


def columns(keys: QueueKeys, job_ids: Sequence[str], fields: Sequence[str]) -> Steps[list[list[bytes | None]]]:
    """Some fields of many jobs of a queue: for each field its values, None where a job has none.

    A job that is gone has no field at all. Jobs come in their order, but for those that follow after some megabytes.
    """
    found: list[list[bytes | None]] = [[] for _ in fields]
    names = [oq1.FieldName(field) for field in fields]
    left = list(chunks(job_ids, _JOBS_PER_CALL))
    while left:
        calls = [
            oq1.read_jobs(stream_key=keys.stream, most_bytes=_BYTES_PER_CALL, fields=names, job_ids=some)
            for some in left
        ]
        replies = all_good((yield calls))
        for reply in replies:
            for place, column in enumerate(found):
                column += reply[place :: len(fields)]
        read = [len(reply) // len(fields) for reply in replies]
        left = [some[count:] for some, count in zip(left, read, strict=True) if count < len(some)]
    return found


def counts(keys: QueueKeys) -> Steps[JobCounts]:
    """Count the queue's jobs by state, in one trip."""
    replies = yield [
        Call("XLEN", (keys.stream,)),
        Call("XPENDING", (keys.stream,), (GROUP,)),
        Call("LLEN", (keys.lifo,)),
        Call("LLEN", (keys.priority,)),
        Call("GET", (keys.list_active,)),
        Call("ZCARD", (keys.scheduled,)),
        Call("ZCARD", (keys.completed,)),
        Call("ZCARD", (keys.failed,)),
        Call("ZCARD", (keys.suspended,)),
    ]
    pending = _without_group(replies.pop(1), [0])[0]
    entries, lifo, priority, list_active, delayed, completed, failed, suspended = all_good(replies)
    return JobCounts(
        waiting=max(0, entries - pending) + lifo + priority,
        active=pending + max(0, int(list_active or 0)),
        delayed=delayed,
        completed=completed,
        failed=failed,
        suspended=suspended,
    )


def count(keys: QueueKeys) -> Steps[int]:
    """Count the jobs that are ready or with a worker, in one trip."""
    entries, lifo, priority, list_active = all_good(
        (
            yield [
                Call("XLEN", (keys.stream,)),
                Call("LLEN", (keys.lifo,)),
                Call("LLEN", (keys.priority,)),
                Call("GET", (keys.list_active,)),
            ]
        )
    )
    return int(entries + lifo + priority) + max(0, int(list_active or 0))


def finished_count(keys: QueueKeys, state: JobState) -> Operation[int]:
    """How many jobs the queue keeps that completed, or that failed."""
    return Operation(Call("ZCARD", (keys.completed if state is JobState.COMPLETED else keys.failed,)), integer)


def _without_group(reply: Reply, default: Reply) -> Reply:
    """A reply about the workers' group, or the default while no worker has ever made the group (or its stream)."""
    if isinstance(reply, Exception):
        if any(sign in str(reply) for sign in ("NOGROUP", "no such key")):
            return default
        raise reply
    return reply


def job_ids(keys: QueueKeys, state: JobState, start: int = 0, end: int = -1) -> Steps[list[str]]:
    """Ids of the jobs in one state, ``start`` to ``end`` inclusive, -1 standing for the last.

    Waiting jobs come in the order in which workers take them, all others oldest first. Delayed includes prioritized
    jobs, as the wire keeps them together.

    Raises:
        UsageError: The wire keeps no list of that state, or the range runs backwards.
    """
    if start < 0 or end < -1:
        raise UsageError(f"The range {start} to {end} is none; count from 0, and let -1 stand for the last job.")
    if state is JobState.WAITING:
        return _waiting_ids(keys, start, end)
    if state is JobState.ACTIVE:
        return _active_ids(keys, start, end)
    return _ranked_ids(sorted_set(keys, state), start, end)


def sorted_set(keys: QueueKeys, state: JobState) -> str:
    """The sorted set in which the jobs of a state are.

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
            f"The wire keeps no list of jobs that are {state}; "
            f"ask for one of {', '.join(['waiting', 'active', *map(str, sets)])}."
        )
    return sets[state]


def _ranked_ids(key: str, start: int, end: int) -> Steps[list[str]]:
    (reply,) = all_good((yield [Call("ZRANGE", (key,), (start, end))]))
    return texts(reply)


def _slice(ids: list[str], start: int, end: int) -> list[str]:
    return ids[start:] if end < 0 else ids[start : end + 1]


def _waiting_ids(keys: QueueKeys, start: int, end: int) -> Steps[list[str]]:
    """Lists first, then what the stream has not yet handed out: everything behind the group's last delivery."""
    last = yield from handed_out_until(keys)
    limit = () if end < 0 else ("COUNT", end + 1)
    leftmost = 0 if end < 0 else -1 - end  # workers take from the right end of both lists
    priority, lifo, entries = all_good(
        (
            yield [
                Call("LRANGE", (keys.priority,), (leftmost, -1)),
                Call("LRANGE", (keys.lifo,), (leftmost, -1)),
                Call("XRANGE", (keys.stream,), (f"({last}", "+", *limit)),
            ]
        )
    )
    ids = [*reversed(texts(priority)), *reversed(texts(lifo)), *(pairs(fields)["jobId"] for _, fields in entries)]
    return _slice(ids, start, end)


def groups(keys: QueueKeys, *more: Call) -> Steps[tuple[list[dict[str, str]], list[Reply]]]:
    """The groups that read the queue's stream, described in the server's words; with the replies to further calls."""
    described, *replies = yield [Call("XINFO", args=("GROUPS", keys.stream), near=keys.stream), *more]
    flat = _without_group(described, [])
    # Some values are numbers, or absent.
    words = [[word if isinstance(word, bytes) else str(word).encode() for word in group] for group in flat]
    return [pairs(group) for group in words], all_good(replies)


def handed_out_until(keys: QueueKeys) -> Steps[str]:
    """Id of the last stream entry that any worker was given; the stream's beginning when there is none."""
    described, _ = yield from groups(keys)
    return last_delivered(described)


def last_delivered(described: Sequence[Mapping[str, str]]) -> str:
    """The same, of groups that were described."""
    return next((group["last-delivered-id"] for group in described if group["name"] == GROUP), FIRST_EVENT)


def oldest_ready_ms(keys: QueueKeys) -> Steps[int | None]:
    """Since when the job has been ready that waits longest in the stream, in two trips; None when none does.

    Prioritized and LIFO jobs are left out: their lists do not say since when they are ready.
    """
    last = yield from handed_out_until(keys)
    (entries,) = all_good((yield [Call("XRANGE", (keys.stream,), (f"({last}", "+", "COUNT", 1))]))
    return int(text(entries[0][0]).partition("-")[0]) if entries else None


def _active_ids(keys: QueueKeys, start: int, end: int) -> Steps[list[str]]:
    ids: list[str] = []
    from_lists: list[str] = []
    ask_lists = [glidemq.get_active_list_job_ids(id_key=keys.id)]
    after = "-"
    while True:
        page, *listed = yield [Call("XPENDING", (keys.stream,), (GROUP, after, "+", HYDRATION)), *ask_lists]
        for reply in all_good(listed):
            from_lists, ask_lists = texts(reply), []
        pending = [text(entry[0]) for entry in _without_group(page, [])]
        replies = yield [Call("XRANGE", (keys.stream,), (entry_id, entry_id)) for entry_id in pending]
        ids += [pairs(reply[0][1]).get("jobId", "") for reply in all_good(replies) if reply]
        if len(pending) < HYDRATION or 0 <= end < len(ids):
            break
        after = f"({pending[-1]}"
    # A list job that went back through the stream is told of twice by other libraries.
    return _slice(list(dict.fromkeys([*ids, *from_lists])), start, end)


def logs(keys: QueueKeys, job_id: str, start: int = 0, end: int = -1) -> Operation[list[str]]:
    """The job's log lines, ``start`` to ``end`` inclusive."""
    return Operation(Call("LRANGE", (keys.log(job_id),), (start, end)), texts)


def last_event_id(keys: QueueKeys) -> Operation[str]:
    """Id of the queue's newest event, to listen from; the stream's beginning when there is none."""

    def read(reply: Reply) -> str:
        return text(reply[0][0]) if reply else FIRST_EVENT

    return Operation(Call("XREVRANGE", (keys.events,), ("+", "-", "COUNT", 1)), read)


def events_since(
    cursors: Mapping[QueueKeys, str], block_ms: int, count: int = EVENTS_PAGE
) -> Operation[dict[QueueKeys, list[Event]]]:
    """Events of several queues, each after its cursor, waiting up to ``block_ms`` for the first. Blocks."""
    by_stream = {keys.events: keys for keys in cursors}

    def read(reply: Reply) -> dict[QueueKeys, list[Event]]:
        return {by_stream[text(stream)]: read_events(entries) for stream, entries in reply or ()}

    call = Call(
        "XREAD",
        args=("COUNT", count, "BLOCK", block_ms, "STREAMS", *by_stream, *cursors.values()),
        near=next(iter(by_stream), None),
    )
    return Operation(call, read)


def oldest_event(keys: QueueKeys) -> Steps[str | None]:
    """Id of the oldest event that is kept, when older ones are not any more; None when nothing was ever dropped."""
    (reply,) = yield [Call("XINFO", args=("STREAM", keys.events), near=keys.events)]
    if isinstance(reply, Exception):
        return None  # there are no events at all, any more
    facts = dict(zip(map(text, reply[::2]), reply[1::2], strict=True))
    has_dropped = facts["entries-added"] > facts["length"] and facts["first-entry"]
    return text(facts["first-entry"][0]) if has_dropped else None
