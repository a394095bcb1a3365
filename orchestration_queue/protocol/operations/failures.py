"""Failed jobs by kind of failure. Read off the records, so that it is right whichever client failed or removed them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.protocol.call import Call, Operation, integer, text, texts
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control, job_records
from orchestration_queue.protocol.operations.conversation import BATCH_SIZE, Conversation, all_good
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = ["KIND_FIELDS", "FailureGroup", "failed_ids", "failures", "remove_finished", "retries"]

KIND_FIELDS = ("failedReason", "failureKind", "failureAttempt", "attemptsMade")
"""What of a record says its kind of failure."""

_GROUP_FIELDS = ("name", "finishedOn", *KIND_FIELDS)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """The failed jobs of one kind of failure.

    Attributes:
        kind: The exception's qualified class, the kind of a ``Failed``, or a ``FailureKind``.
        count: How many jobs failed so.
        last_at: When the latest of them failed.
        job_id: That job, as an example.
        name: Its name.
        reason: Its reason.
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

    yield from _walk(keys, "ZREVRANGE", _GROUP_FIELDS, count)
    return [
        FailureGroup(kind, counts[kind], job.finished_at, job.id, job.name, job.failed_reason or "")
        for kind, job in sorted(latest.items(), key=lambda each: (-counts[each[0]], each[0]))
    ]


def failed_ids(keys: QueueKeys, kind: str, limit: int | None, until_ms: int | None = None) -> Conversation[list[str]]:
    """Ids of the failed jobs of one kind, oldest first: at most ``limit``, that failed by ``until_ms``."""
    found: list[str] = []

    def keep(job: JobRecord) -> bool:
        if job.failure_kind == kind and len(found) != limit:
            found.append(job.id)
        return len(found) == limit

    last = "+inf" if until_ms is None else until_ms
    (failed,) = all_good((yield [Call("ZCOUNT", (keys.failed,), ("-inf", last))]))
    if limit != 0:
        yield from _walk(keys, "ZRANGE", KIND_FIELDS, keep, integer(failed))
    return found


def _walk(
    keys: QueueKeys,
    command: str,
    fields: Sequence[str],
    visit: Callable[[JobRecord], bool],
    most: int = sys.maxsize,
) -> Conversation[None]:
    """Call ``visit`` with some fields of each failed job until it returns True. Jobs that are gone are left out."""
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


def remove_finished(keys: QueueKeys, state: JobState, job_ids: Sequence[str]) -> Operation[list[str]]:
    """Remove those of the jobs that are still in this finished state; returns their ids."""
    finished = keys.completed if state is JobState.COMPLETED else keys.failed
    return Operation(oq1.clean_jobs(keys, finished_key=finished, job_ids=job_ids), texts)


def retries(keys: QueueKeys, job_ids: Sequence[str], now_ms: int) -> Conversation[int]:
    """Give those of the jobs that are still failed all their attempts again; returns how many there were."""
    replies = all_good((yield [control.retry(keys, job_id, now_ms).call for job_id in job_ids]))
    return sum(text(reply) == "ok" for reply in replies)
