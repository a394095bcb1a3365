"""Partitions of the jobs in one state of a queue, each read page by page.

A partition is a range of entry ids or scores, not of ranks: jobs that are added or removed meanwhile don't move others
to another partition, so each job that stays in its state is read exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from orchestration_queue.protocol.call import BATCH_SIZE, Call, Conversation, Reply, all_good, text, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records, queue_state, shares
from orchestration_queue.protocol.operations.event_log import place
from orchestration_queue.protocol.record import entry_job_id
from orchestration_queue.states import JobState

__all__ = ["CUTTABLE", "Cursor", "Partition", "before", "cut_entries", "divide", "page"]

CUTTABLE = (
    JobState.WAITING,
    JobState.ACTIVE,
    JobState.DELAYED,
    JobState.COMPLETED,
    JobState.FAILED,
    JobState.SUSPENDED,
)
"""The states that the wire keeps lists of."""

_SEQUENCES = 1 << 64
"""How many ids a stream has per millisecond."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of the jobs of one state.

    Attributes:
        kind: Where they are: ``entries`` of the stream, a sorted set by ``scores``, or what must be ``listed`` whole.
        state: Their state.
        after: The entry or score before the first; ``-inf`` for a sorted set's beginning.
        until: The last entry or score.
    """

    kind: Literal["entries", "scores", "listed"]
    state: JobState
    after: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position in a partition.

    Attributes:
        at: The last entry or score that was read.
        seen: The jobs with that score that were read.
    """

    at: str
    seen: frozenset[str] = frozenset()


def _position(number: int) -> str:
    """Return the stream id with a number; the reverse of :func:`_number`."""
    milliseconds, sequence = divmod(number, _SEQUENCES)
    return f"{milliseconds}-{sequence}"


def _number(entry_id: str) -> int:
    milliseconds, sequence = place(entry_id)
    return milliseconds * _SEQUENCES + sequence


def before(entry_id: str) -> str:
    """Return the position just before an entry of a stream."""
    return _position(_number(entry_id) - 1)


def cut_entries(after: str, until: str, parts: int) -> list[tuple[str, str]]:
    """Divide the ids after ``after``, up to ``until``, into ranges of equal time, none of them empty.

    The result depends on the arguments only, so the same range is always divided in the same way.
    """
    first, last = _number(after), _number(until)
    if last <= first:
        return []
    cuts = sorted({first + (last - first) * part // parts for part in range(parts + 1)})
    ids = [after, *map(_position, cuts[1:-1]), until]
    return list(pairwise(ids))


def divide(keys: QueueKeys, state: JobState, parts: int) -> Conversation[list[Partition]]:
    """Divide the jobs that are in a state now into up to ``parts`` partitions. Two exchanges.

    Raises:
        UsageError: The wire keeps no list of that state.
    """
    if state is JobState.WAITING:
        return _cut_waiting(keys, parts)
    if state is JobState.ACTIVE:
        return _whole(state)
    return _cut_ranks(keys, state, parts)


def _whole(state: JobState) -> Conversation[list[Partition]]:
    yield from ()
    return [Partition("listed", state)]


def _cut_waiting(keys: QueueKeys, parts: int) -> Conversation[list[Partition]]:
    """Return partitions of the stream's undelivered entries, and one for the lists beside it."""
    ends = [
        Call("XRANGE", (keys.stream,), ("-", "+", "COUNT", 1)),
        Call("XREVRANGE", (keys.stream,), ("+", "-", "COUNT", 1)),
    ]
    described, (oldest, newest) = yield from queue_state.groups(keys, *ends)
    found = [Partition("listed", JobState.WAITING)]
    if newest:
        handed_out = queue_state.last_delivered(described)
        first = before(text(oldest[0][0]))
        after = max(handed_out, first, key=place)
        found += [Partition("entries", JobState.WAITING, *cut) for cut in cut_entries(after, text(newest[0][0]), parts)]
    return found


def _cut_ranks(keys: QueueKeys, state: JobState, parts: int) -> Conversation[list[Partition]]:
    key = job_records.sorted_set(keys, state)
    (size,) = all_good((yield [Call("ZCARD", (key,))]))
    if not size:
        return []
    ranks = sorted({max(0, size * part // parts - 1) for part in range(1, parts + 1)})
    replies = all_good((yield [Call("ZRANGE", (key,), (rank, rank, "WITHSCORES")) for rank in ranks]))
    # Jobs with equal scores stay together: the pages of a partition are read by score.
    scores = dict.fromkeys(text(reply[1]) for reply in replies if reply)
    bounds = ["-inf", *scores]
    return [Partition("scores", state, *pair) for pair in pairwise(bounds)]


def page(
    keys: QueueKeys, partition: Partition, cursor: Cursor | None = None
) -> Conversation[tuple[list[str], Cursor | None]]:
    """Return the ids of the next jobs of a partition, up to about 1,000, and where to continue; None at the end.

    One exchange. A partition that must be listed as a whole comes in one page.
    """
    if partition.kind == "entries":
        return _entries_page(keys, partition, partition.after if cursor is None else cursor.at)
    if partition.kind == "scores":
        return _scores_page(keys, partition, cursor)
    return _list_page(keys, partition.state)


def _entries_page(keys: QueueKeys, partition: Partition, after: str) -> Conversation[tuple[list[str], Cursor | None]]:
    call = Call("XRANGE", (keys.stream,), (f"({after}", partition.until, "COUNT", BATCH_SIZE))
    (reply,) = all_good((yield [call]))
    ids = [entry_job_id(fields) for _, fields in reply]
    return ids, Cursor(text(reply[-1][0])) if len(reply) == BATCH_SIZE else None


def _scores_page(
    keys: QueueKeys, partition: Partition, cursor: Cursor | None
) -> Conversation[tuple[list[str], Cursor | None]]:
    """Read by score. The next page begins with the last score again, whose jobs may exceed the page."""
    seen = cursor.seen if cursor else frozenset()
    low = f"({partition.after}" if cursor is None else cursor.at
    size = BATCH_SIZE + len(seen)
    key = job_records.sorted_set(keys, partition.state)
    (reply,) = all_good((yield [Call("ZRANGEBYSCORE", (key,), (low, partition.until, "WITHSCORES", "LIMIT", 0, size))]))
    scored = list(_pair_scores(reply))
    ids = [job_id for job_id, _ in scored if job_id not in seen]
    if len(scored) < size:
        return ids, None
    last = scored[-1][1]
    return ids, Cursor(last, frozenset(job_id for job_id, score in scored if score == last))


def _pair_scores(reply: Sequence[Reply]) -> Iterator[tuple[str, str]]:
    words = texts(reply)
    return zip(words[::2], words[1::2], strict=True)


def _list_page(keys: QueueKeys, state: JobState) -> Conversation[tuple[list[str], Cursor | None]]:
    if state is not JobState.WAITING:
        return (yield from job_records.job_ids(keys, state)), None
    lists = all_good((yield [Call("LRANGE", (key,), (0, -1)) for key in (keys.priority, keys.lifo)]))
    names = yield from shares.busy(keys)
    shared = all_good((yield [Call("ZRANGE", (keys.share(name),), (0, -1)) for name in names])) if names else []
    return [job_id for listed in (*lists, *shared) for job_id in texts(listed)], None
