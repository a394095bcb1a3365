"""Find jobs by name, data, kind of failure or tag.

The lists of each state are read in pages, so that no call blocks the server for long.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from orchestration_queue.errors import PayloadError
from orchestration_queue.protocol.call import (
    BATCH_SIZE,
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    integer,
    text,
    texts,
)
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records, queue_state, shares
from orchestration_queue.protocol.operations.keyspace import FIRST_PAGE, queue_pattern, scan_page
from orchestration_queue.protocol.operations.steps import CALLER
from orchestration_queue.protocol.record import JobRecord, entry_job_id, pairs
from orchestration_queue.states import JobState

__all__ = [
    "KIND_FIELDS",
    "TAG_PAGE",
    "FailureGroup",
    "JobQuery",
    "TagCount",
    "failed_ids",
    "failures",
    "most_used_tags",
    "search_jobs",
    "tag_page",
    "tagged_ids",
]


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Conditions for jobs.

    Attributes:
        name: The name, exactly; None allows any.
        data: Fields that the data must have, each with an equal value; None allows any data.
        state: The state in the job's record; None allows any.
        kind: The kind of failure of the last attempt; None allows any.
    """

    name: str | None = None
    data: Mapping[str, Any] | None = None
    state: JobState | None = None
    kind: str | None = None

    def may_match(self, record: JobRecord) -> bool:
        """Whether a record with only :attr:`first_fields` may match."""
        return self.name in (None, record.name) and self.kind in (None, record.failure_kind)

    @property
    def first_fields(self) -> tuple[str, ...]:
        """The fields that exclude most jobs; the others are read only of jobs that may match."""
        return (*(("name",) if self.name is not None else ()), *(KIND_FIELDS if self.kind is not None else ()))

    def matches(self, record: JobRecord) -> bool:
        """Whether a job meets the conditions. Data of another serializer doesn't match."""
        if not self.may_match(record) or self.state not in (None, record.state):
            return False
        if self.data is None:
            return True
        try:
            stored = record.data
        except PayloadError:
            return False
        return isinstance(stored, dict) and all(
            field in stored and stored[field] == value for field, value in self.data.items()
        )


class _Search:
    """The jobs found so far."""

    def __init__(self, keys: QueueKeys, query: JobQuery, limit: int) -> None:
        self.keys = keys
        # Without conditions, every job that is read is found.
        self.page = limit if query == JobQuery() and limit < BATCH_SIZE else BATCH_SIZE
        self._query = query
        self._limit = limit
        self._found: dict[str, JobRecord] = {}

    @property
    def found(self) -> list[JobRecord]:
        """The jobs found, up to the limit."""
        return list(self._found.values())[: self._limit]

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return len(self._found) >= self._limit

    def keep_matching(self, ids: Sequence[str]) -> Conversation[None]:
        """Keep the jobs that match. Only those that may match by the query's first fields are read as a whole."""
        query = self._query
        if ids and (fields := query.first_fields):
            parts = yield from job_records.jobs([(self.keys, job_id) for job_id in ids], fields)
            ids = [job_id for job_id, part in zip(ids, parts, strict=True) if part and query.may_match(part)]
        records = yield from job_records.jobs([(self.keys, job_id) for job_id in ids])
        self._found.update({record.id: record for record in records if record and query.matches(record)})


_Walk: TypeAlias = Callable[[_Search], Conversation[None]]


def search_jobs(
    keys: QueueKeys, query: JobQuery, state: JobState | None, limit: int, span: tuple[int, int] | None = None
) -> Conversation[list[JobRecord]]:
    """Return the jobs that match, at most ``limit``; with a span, those that ended within these epoch milliseconds.

    Without a state, the lists of all states are searched, active jobs first. Of the jobs that wait for others, only
    those that called these from a step are listed; the rest is found by naming that state, which scans all keys of the
    queue's server.
    """
    # Only the records distinguish prioritized jobs from delayed ones, and those that wait for children from others.
    in_record = state if state in (JobState.PRIORITIZED, JobState.WAITING_CHILDREN) else None
    search = _Search(keys, replace(query, state=in_record), limit)
    if state is not None and span is not None:
        yield from _walk_span(search, job_records.sorted_set(keys, state), *span)
        return search.found
    for walk in [_WALKS[state]] if state is not None else _ALL_LISTS:
        if search.is_full:
            break
        yield from walk(search)
    return search.found


def _walk_span(search: _Search, key: str, since_ms: int, until_ms: int) -> Conversation[None]:
    """Search the jobs that ended from one time until before another, newest first."""
    start = 0
    while not search.is_full:
        span = (f"({until_ms}", since_ms, "BYSCORE", "REV", "LIMIT", start, search.page)
        (reply,) = all_good((yield [Call("ZRANGE", (key,), span)]))
        ids = texts(reply)
        yield from search.keep_matching(ids)
        if len(ids) < search.page:
            return
        start += search.page


def _walk_waiting(search: _Search) -> Conversation[None]:
    """Search in the order in which workers take jobs, but one share after the other, before the stream."""
    for key in (search.keys.priority, search.keys.lifo):
        yield from _search_list(search, key)
    for name in (yield from shares.busy(search.keys)):
        yield from _walk_set(search, search.keys.share(name))
    after = yield from queue_state.handed_out_until(search.keys)
    while not search.is_full:
        call = Call("XRANGE", (search.keys.stream,), (f"({after}", "+", "COUNT", search.page))
        (entries,) = all_good((yield [call]))
        yield from search.keep_matching([entry_job_id(fields) for _, fields in entries])
        if len(entries) < search.page:
            return
        after = text(entries[-1][0])


def _search_list(search: _Search, key: str) -> Conversation[None]:
    """Search a list from its right end, where workers take."""
    start = 0
    while not search.is_full:
        (reply,) = all_good((yield [Call("LRANGE", (key,), (-start - search.page, -start - 1))]))
        ids = texts(reply)
        yield from search.keep_matching(ids[::-1])
        if len(ids) < search.page:
            return
        start += search.page


def _walk_set(search: _Search, key: str, prefix: str = "") -> Conversation[None]:
    start = 0
    while not search.is_full:
        (reply,) = all_good((yield [Call("ZRANGE", (key,), (start, start + search.page - 1))]))
        ids = texts(reply)
        yield from search.keep_matching([each.removeprefix(prefix) for each in ids if each.startswith(prefix)])
        if len(ids) < search.page:
            return
        start += search.page


def _walk_set_of(name: str) -> _Walk:
    return lambda search: _walk_set(search, search.keys.named(name))


def _active(search: _Search) -> Conversation[None]:
    ids = yield from job_records.job_ids(search.keys, JobState.ACTIVE)
    yield from search.keep_matching(ids)


def _walk_groups(search: _Search) -> Conversation[None]:
    """Search group by group; each ordering key that was ever used has a sequence number."""
    cursor = FIRST_PAGE
    while not search.is_full:
        (reply,) = all_good((yield [Call("HSCAN", (search.keys.named("ordering"),), (cursor, "COUNT", BATCH_SIZE))]))
        cursor = text(reply[0])
        parked = [search.keys.named(f"groupq:{group}") for group in pairs(reply[1])]
        sizes = all_good((yield [Call("ZCARD", (key,)) for key in parked]))
        for key, size in zip(parked, sizes, strict=True):
            if size and not search.is_full:
                yield from _walk_set(search, key)
        if cursor == FIRST_PAGE:
            return


def _walk_callers(search: _Search) -> Conversation[None]:
    """Search the jobs that called others, which a reconciler checks until they have ended."""
    return _walk_set(search, search.keys.flows_due, CALLER)


def _everywhere(search: _Search) -> Conversation[None]:
    start = len(search.keys.job(""))
    cursor = FIRST_PAGE
    while not search.is_full:
        found, cursor = yield from scan_page(queue_pattern(search.keys, "job:*"), cursor, search.keys.stream)
        # Jobs have further keys besides their record, such as a lock.
        yield from search.keep_matching([key[start:] for key in found if ":" not in key[start:]])
        if cursor == FIRST_PAGE:
            return


_WALKS: Mapping[JobState, _Walk] = {
    JobState.WAITING: _walk_waiting,
    JobState.ACTIVE: _active,
    JobState.DELAYED: _walk_set_of("scheduled"),
    JobState.PRIORITIZED: _walk_set_of("scheduled"),
    JobState.GROUP_WAITING: _walk_groups,
    JobState.SUSPENDED: _walk_set_of("suspended"),
    JobState.FAILED: _walk_set_of("failed"),
    JobState.COMPLETED: _walk_set_of("completed"),
    JobState.WAITING_CHILDREN: _everywhere,
}

_ALL_LISTS = [
    _WALKS[JobState.ACTIVE],
    _WALKS[JobState.WAITING],
    _WALKS[JobState.DELAYED],
    _WALKS[JobState.GROUP_WAITING],
    _WALKS[JobState.SUSPENDED],
    _walk_callers,
    _WALKS[JobState.FAILED],
    _WALKS[JobState.COMPLETED],
]


KIND_FIELDS = ("failedReason", "failureKind", "failureAttempt", "attemptsMade")
"""Fields of a record that determine the kind of failure."""

_GROUP_FIELDS = ("name", "finishedOn", *KIND_FIELDS)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """The failed jobs of one kind of failure.

    Attributes:
        kind: The exception's qualified class, the kind of a ``Failed``, or a ``FailureKind``.
        count: How many jobs failed with it.
        last_at: When the latest of them failed.
        job_id: That job, as an example.
        name: That job's name.
        reason: That job's reason.
    """

    kind: str
    count: int
    last_at: datetime | None
    job_id: str
    name: str
    reason: str


def failures(keys: QueueKeys) -> Conversation[list[FailureGroup]]:
    """Group all failed jobs by kind, the most frequent first. Two exchanges per 1,000 failed jobs."""
    counts: Counter[str] = Counter()
    latest: dict[str, JobRecord] = {}

    def count(job: JobRecord) -> bool:
        if (kind := job.failure_kind) is not None:
            counts[kind] += 1
            latest.setdefault(kind, job)
        return False

    yield from _walk_failed(keys, "ZREVRANGE", _GROUP_FIELDS, count)
    return [
        FailureGroup(kind, counts[kind], job.finished_at, job.id, job.name, job.failed_reason or "")
        for kind, job in sorted(latest.items(), key=lambda each: (-counts[each[0]], each[0]))
    ]


def failed_ids(keys: QueueKeys, kind: str, limit: int | None, until_ms: int | None = None) -> Conversation[list[str]]:
    """Return the ids of failed jobs of one kind, oldest first: at most ``limit``, that failed by ``until_ms``."""
    found: list[str] = []

    def keep(job: JobRecord) -> bool:
        if job.failure_kind == kind and len(found) != limit:
            found.append(job.id)
        return len(found) == limit

    last = "+inf" if until_ms is None else until_ms
    (failed,) = all_good((yield [Call("ZCOUNT", (keys.failed,), ("-inf", last))]))
    if limit != 0:
        yield from _walk_failed(keys, "ZRANGE", KIND_FIELDS, keep, integer(failed))
    return found


def _walk_failed(
    keys: QueueKeys,
    command: str,
    fields: Sequence[str],
    visit: Callable[[JobRecord], bool],
    most: int = sys.maxsize,
) -> Conversation[None]:
    """Call ``visit`` with some fields of each failed job until it returns True. Removed jobs are skipped."""
    for start in range(0, most, BATCH_SIZE):
        page = Call(command, (keys.failed,), (start, min(start + BATCH_SIZE, most) - 1))
        ids = texts(*all_good((yield [page])))
        values = yield from job_records.columns(keys, ids, fields)
        for job_id, *stored in zip(ids, *values, strict=True):
            known = {
                name: value.decode("utf-8", "surrogateescape")
                for name, value in zip(fields, stored, strict=True)
                if value is not None
            }
            if known and visit(JobRecord(job_id, known)):
                return
        if len(ids) < BATCH_SIZE:
            return


TAG_PAGE = 200
"""Maximum jobs of a tag per call."""


@dataclass(frozen=True, slots=True)
class TagCount:
    """How many jobs have a tag.

    Attributes:
        tag: The tag.
        jobs: How many jobs have it. Removed jobs are counted until a reader or a worker's sweep finds them.
    """

    tag: str
    jobs: int


def tag_page(keys: QueueKeys, tag: str, offset: int, limit: int) -> Operation[tuple[list[str], bool]]:
    """Read the ids of up to ``limit`` jobs of a tag, oldest first, and whether there may be more."""
    call = oq1.tagged(keys, tag=tag, offset=offset, limit=limit)
    return Operation(call, lambda reply: (texts(reply[0]), integer(reply[1]) == 1))


def tagged_ids(keys: QueueKeys, tag: str, limit: int | None, offset: int = 0) -> Conversation[list[str]]:
    """Return the ids of the jobs of a tag, oldest first. One exchange per 200 jobs."""
    found: list[str] = []
    has_more = limit != 0
    while has_more and (limit is None or len(found) < limit):
        size = TAG_PAGE if limit is None else min(TAG_PAGE, limit - len(found))
        operation = tag_page(keys, tag, offset + len(found), size)
        ids, has_more = operation.read(*all_good((yield [operation.call])))
        found += ids
    return found


def most_used_tags(keys: QueueKeys, limit: int | None, offset: int = 0) -> Operation[list[TagCount]]:
    """Count the jobs of the tags in use, the most used tag first."""
    last = -1 if limit is None else offset + limit - 1
    places = (1, 0) if limit == 0 else (offset, last)

    def read(reply: Reply) -> list[TagCount]:
        # RESP 3 answers in pairs, RESP 2 flat.
        flat = [word for pair in reply for word in pair] if reply and isinstance(reply[0], list) else reply
        return [TagCount(text(tag), int(float(jobs))) for tag, jobs in zip(flat[::2], flat[1::2], strict=True)]

    return Operation(Call("ZREVRANGE", (keys.tags,), (*places, "WITHSCORES")), read)
