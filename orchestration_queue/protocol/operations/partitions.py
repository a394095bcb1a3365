"""Partitions of one state of a queue, each read page by page.

A part is a range of what orders its jobs, not of their ranks: jobs that come and go meanwhile move no other job from
one part to another, so that each job that stays where it is, is read once.
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

__all__ = ["CUTTABLE", "Cursor", "Partition", "before", "cut_entries", "extents", "page"]

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
"""How many ids a stream can give out in one millisecond."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of the jobs of one state.

    Attributes:
        kind: What holds them: a stream's ``entries``, a sorted set by ``scores``, or what has to be ``listed`` whole.
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
    """How far the reading of an extent has come.

    Attributes:
        at: The last entry or score that was read.
        seen: The jobs of that score that were.
    """

    at: str
    seen: frozenset[str] = frozenset()


def _position(number: int) -> str:
    """Return a stream id by its number among all that there could be."""
    milliseconds, sequence = divmod(number, _SEQUENCES)
    return f"{milliseconds}-{sequence}"


def _number(entry_id: str) -> int:
    milliseconds, sequence = place(entry_id)
    return milliseconds * _SEQUENCES + sequence


def before(entry_id: str) -> str:
    """Return the position just before an entry of a stream."""
    return _position(_number(entry_id) - 1)


def cut_entries(after: str, until: str, parts: int) -> list[tuple[str, str]]:
    """Cut the ids behind ``after``, up to ``until``, into parts of equal time, none of them empty by its bounds.

    The cuts follow from the arguments alone, so that the same range is always cut in the same way.
    """
    first, last = _number(after), _number(until)
    if last <= first:
        return []
    cuts = sorted({first + (last - first) * part // parts for part in range(parts + 1)})
    ids = [after, *map(_position, cuts[1:-1]), until]
    return list(pairwise(ids))


def extents(keys: QueueKeys, state: JobState, parts: int) -> Conversation[list[Partition]]:
    """Divide the jobs that are in a state now into up to ``parts`` partitions. Two exchanges.

    Raises:
        UsageError: The wire keeps no list of that state.
    """
    if state is JobState.WAITING:
        return _waiting(keys, parts)
    if state is JobState.ACTIVE:
        return _whole(state)
    return _ranked(keys, state, parts)


def _whole(state: JobState) -> Conversation[list[Partition]]:
    yield from ()
    return [Partition("listed", state)]


def _waiting(keys: QueueKeys, parts: int) -> Conversation[list[Partition]]:
    """Return what the stream has not handed out, and one part for what lies in the lists beside it."""
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


def _ranked(keys: QueueKeys, state: JobState, parts: int) -> Conversation[list[Partition]]:
    key = job_records.sorted_set(keys, state)
    (size,) = all_good((yield [Call("ZCARD", (key,))]))
    if not size:
        return []
    ranks = sorted({max(0, size * part // parts - 1) for part in range(1, parts + 1)})
    replies = all_good((yield [Call("ZRANGE", (key,), (rank, rank, "WITHSCORES")) for rank in ranks]))
    scores = dict.fromkeys(text(reply[1]) for reply in replies if reply)
    bounds = ["-inf", *scores]
    return [Partition("scores", state, *pair) for pair in pairwise(bounds)]


def page(
    keys: QueueKeys, extent: Partition, cursor: Cursor | None = None
) -> Conversation[tuple[list[str], Cursor | None]]:
    """Return the ids of the next jobs of a partition, up to about 1,000, and where to continue; None at the end.

    One exchange. A partition that must be listed as a whole comes in one page.
    """
    if extent.kind == "entries":
        return _entries_page(keys, extent, extent.after if cursor is None else cursor.at)
    if extent.kind == "scores":
        return _scores_page(keys, extent, cursor)
    return _list_page(keys, extent.state)


def _entries_page(keys: QueueKeys, extent: Partition, after: str) -> Conversation[tuple[list[str], Cursor | None]]:
    call = Call("XRANGE", (keys.stream,), (f"({after}", extent.until, "COUNT", BATCH_SIZE))
    (reply,) = all_good((yield [call]))
    ids = [entry_job_id(fields) for _, fields in reply]
    return ids, Cursor(text(reply[-1][0])) if len(reply) == BATCH_SIZE else None


def _scores_page(
    keys: QueueKeys, extent: Partition, cursor: Cursor | None
) -> Conversation[tuple[list[str], Cursor | None]]:
    """Leave out the jobs of the last score, which may be more than a page: they are asked for again."""
    seen = cursor.seen if cursor else frozenset()
    low = f"({extent.after}" if cursor is None else cursor.at
    size = BATCH_SIZE + len(seen)
    key = job_records.sorted_set(keys, extent.state)
    (reply,) = all_good((yield [Call("ZRANGEBYSCORE", (key,), (low, extent.until, "WITHSCORES", "LIMIT", 0, size))]))
    scored = list(_scored(reply))
    ids = [job_id for job_id, _ in scored if job_id not in seen]
    if len(scored) < size:
        return ids, None
    last = scored[-1][1]
    return ids, Cursor(last, frozenset(job_id for job_id, score in scored if score == last))


def _scored(reply: Sequence[Reply]) -> Iterator[tuple[str, str]]:
    words = texts(reply)
    return zip(words[::2], words[1::2], strict=True)


def _list_page(keys: QueueKeys, state: JobState) -> Conversation[tuple[list[str], Cursor | None]]:
    if state is not JobState.WAITING:
        return (yield from job_records.job_ids(keys, state)), None
    lists = all_good((yield [Call("LRANGE", (key,), (0, -1)) for key in (keys.priority, keys.lifo)]))
    names = yield from shares.busy(keys)
    shared = all_good((yield [Call("ZRANGE", (keys.share(name),), (0, -1)) for name in names])) if names else []
    return [job_id for listed in (*lists, *shared) for job_id in texts(listed)], None
