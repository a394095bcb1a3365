"""The workers of a queue: their registrations, their group, and what takers must know of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from orchestration_queue.errors import ServerError
from orchestration_queue.options import milliseconds
from orchestration_queue.options.wire import lease_from_wire
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    chunks,
    integer,
    optional_text,
    read_time,
    text,
)
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.keys import GROUP, TAKER, QueueKeys
from orchestration_queue.protocol.operations import job_records, queue_settings
from orchestration_queue.protocol.operations.keyspace import queue_pattern, scan
from orchestration_queue.protocol.operations.queue_state import without_group
from orchestration_queue.protocol.record import JobRecord, entry_job_id, when, whole_number
from orchestration_queue.states import JobState

__all__ = [
    "MOST_TASKS",
    "NAME_LENGTH",
    "USUAL_LEASE_MS",
    "Opening",
    "WorkerInfo",
    "WorkerJob",
    "count_workers",
    "create_group",
    "has_worker",
    "held_jobs",
    "is_paused",
    "leave_group",
    "name_dead_letter_queue",
    "open_queue",
    "pending",
    "register",
    "unregister",
    "workers",
    "workers_with_jobs",
]


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A job that a worker runs.

    Attributes:
        id: The job's id.
        name: What kind of job it is.
        started_at: When this attempt started.
        progress: The progress that it last reported; None without any, or if the job has ended.
        lease_left: Time until its lease ends without a renewal, 0 if it has ended; None if the job has ended.
    """

    id: str
    name: str
    started_at: datetime | None
    progress: Any = None
    lease_left: timedelta | None = None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that is alive, or was a moment ago.

    Attributes:
        id: Its name among the queue's consumers.
        host: The machine it runs on.
        pid: Its process there.
        started_at: When it started, by its own clock.
        active_jobs: How many jobs it was running at its last report.
        jobs: The longest running of these, at most 100.
        tasks: The names of the tasks that it runs; empty if one handler runs all jobs.
        strategies: The names of its custom backoffs; None if it does not report them.
        concurrency: How many jobs it runs at a time; None if it does not report this, as Node's workers.
        is_paused: Whether it takes no jobs, for any reason.
        memory_bytes: The memory that its process occupies; None if unknown.
        version: Its version of this package; None for another library's worker.
        code_version: The version of the code that it runs, from its options; None if not set.
        isolation: For a Dagster worker: by code location, whether its steps are forked or spawned, and why.
        reported_at: When it last reported this, by the server's clock.
        lease: The lease of jobs that set none; None if it does not report this.
    """

    id: str
    host: str
    pid: int
    started_at: datetime
    active_jobs: int
    jobs: tuple[WorkerJob, ...] = ()
    tasks: tuple[str, ...] = ()
    strategies: tuple[str, ...] | None = None
    concurrency: int | None = None
    is_paused: bool = False
    memory_bytes: int | None = None
    version: str | None = None
    code_version: str | None = None
    isolation: Mapping[str, str] = field(default_factory=dict, hash=False)
    reported_at: datetime | None = None
    lease: timedelta | None = None


def workers(keys: QueueKeys, ids: Sequence[str] | None = None) -> Conversation[list[WorkerInfo]]:
    """Return the registered workers, oldest first. Scans all keys of the server, then one read per 1,000 workers.

    Args:
        keys: The queue.
        ids: The workers that may be registered, if known, so that no keys are scanned.
    """
    if ids is None:
        registered = yield from scan(queue_pattern(keys, "w:*"), keys.stream)
    else:
        registered = [keys.worker(each) for each in ids]
    found = []
    for piece in chunks(registered):
        (replies,) = all_good((yield [Call("MGET", tuple(piece))]))
        named = zip(piece, map(optional_text, replies), strict=True)
        found += [info for key, text in named if text and (info := _read_worker(key.rpartition(":w:")[2], text))]
    return sorted(found, key=lambda info: (info.started_at, info.id))


def workers_with_jobs(keys: QueueKeys, ids: Sequence[str] | None = None) -> Conversation[list[WorkerInfo]]:
    """Return the same, with the current state of their jobs. Two more exchanges, and one per 1,000 jobs."""
    found = yield from workers(keys, ids)
    running = [job.id for info in found for job in info.jobs]
    if not running:
        return found
    settings = queue_settings.stored_settings(keys)
    stored, time = all_good((yield [settings.call, Call("TIME", near=keys.stream)]))
    now_ms = read_time(time)
    usual_ms = settings.read(stored).lease_ms
    records = iter((yield from job_records.jobs([(keys, job_id) for job_id in running], _OF_JOBS)))
    return [
        replace(info, jobs=tuple(_with_progress(job, next(records), info, usual_ms, now_ms) for job in info.jobs))
        for info in found
    ]


_OF_JOBS = ("state", "processedOn", "lastActive", "progress", "opts")
_USUAL_LEASE_MS = 30_000


def _with_progress(
    job: WorkerJob, record: JobRecord | None, info: WorkerInfo, usual_ms: int | None, now_ms: int
) -> WorkerJob:
    """Return the job with progress and lease from its record, if that is about the same attempt."""
    if record is None or record.state is not JobState.ACTIVE or record.started_at != job.started_at:
        return job
    own_ms = None if info.lease is None else milliseconds(info.lease)
    lease_ms = lease_from_wire(record.options.get("lockDuration")) or usual_ms or own_ms or _USUAL_LEASE_MS
    heard_ms = whole_number(record.fields.get("lastActive")) or whole_number(record.fields.get("processedOn")) or now_ms
    left = timedelta(milliseconds=max(0, int(heard_ms + lease_ms - now_ms)))
    return replace(job, progress=record.progress, lease_left=left)


def _read_worker(consumer: str, stored: str) -> WorkerInfo | None:
    """Return a registration, from any library; None if it lacks required fields."""
    try:
        fields = json.loads(stored)
        host, pid, started_ms = fields["addr"], fields["pid"], fields["startedAt"]
        if not isinstance(host, str) or (started_at := when(int(started_ms))) is None:
            return None
        return WorkerInfo(
            consumer,
            host,
            int(pid),
            started_at,
            int(fields.get("activeJobs") or 0),
            jobs=tuple(WorkerJob(str(id_), str(name), when(int(since))) for id_, name, since in fields.get("jobs", ())),
            tasks=tuple(map(str, fields.get("tasks", ()))),
            strategies=tuple(map(str, fields["strategies"])) if "strategies" in fields else None,
            concurrency=_whole(fields.get("concurrency")),
            is_paused=fields.get("paused") is True,
            memory_bytes=_whole(fields.get("memory")),
            version=_text(fields.get("version")),
            code_version=_text(fields.get("codeVersion")),
            isolation={str(place): str(words) for place, words in dict(fields.get("isolation") or {}).items()},
            reported_at=when(_whole(fields.get("reportedAt"))),
            lease=_duration(fields.get("lease")),
        )
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _duration(value: object) -> timedelta | None:
    lease_ms = lease_from_wire(value)
    return timedelta(milliseconds=lease_ms) if lease_ms else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def create_group(keys: QueueKeys, group: str = GROUP, start_from: str = "0") -> Call:
    """Create the workers' group; the server replies BUSYGROUP if it exists."""
    return Call("XGROUP", args=("CREATE", keys.stream, group, start_from, "MKSTREAM"), near=keys.stream)


def pending(keys: QueueKeys, group: str = GROUP) -> Call:
    """Summarize the group's pending entries; the server replies NOGROUP without such a group."""
    return Call("XPENDING", (keys.stream,), (group,))


def held_jobs(keys: QueueKeys, consumers: Sequence[str], most: int) -> Conversation[list[list[str]]]:
    """Return the jobs from the stream that each consumer holds now, at most some. Two exchanges."""
    spans = yield [Call("XPENDING", (keys.stream,), (GROUP, "-", "+", most, consumer)) for consumer in consumers]
    held = [[text(entry[0]) for entry in without_group(span, [])] for span in spans]
    calls = [Call("XRANGE", (keys.stream,), (entry_id, entry_id)) for ids in held for entry_id in ids]
    replies: Iterator[Reply] = iter(all_good((yield calls)) if calls else ())
    return [[entry_job_id(reply[0][1]) for reply in islice(replies, len(ids)) if reply] for ids in held]


def leave_group(keys: QueueKeys, consumer: str, group: str = GROUP) -> tuple[Call, Call]:
    """Return calls that ask for a pending entry of the consumer, and that remove it; send the second if it has none."""
    return (
        Call("XPENDING", (keys.stream,), (group, "-", "+", 1, consumer)),
        Call("XGROUP", args=("DELCONSUMER", keys.stream, group, consumer), near=keys.stream),
    )


def register(keys: QueueKeys, consumer: str, description: dict[str, object], ttl_ms: int) -> Call:
    """Register this worker as alive for the next ``ttl_ms``."""
    return Call("SET", (keys.worker(consumer),), (dump_json(description), "PX", ttl_ms))


def unregister(keys: QueueKeys, consumer: str) -> Call:
    """Remove this worker from the registry."""
    return Call("DEL", (keys.worker(consumer),))


def name_dead_letter_queue(keys: QueueKeys, name: str) -> Call:
    """Record where the queue's dead letters are, for its readers."""
    return Call("HSET", (keys.meta,), ("deadLetterQueueName", name))


def is_paused(keys: QueueKeys) -> Operation[bool]:
    """Read whether the queue is paused."""
    return Operation(Call("HGET", (keys.meta,), ("paused",)), lambda reply: reply == b"1")


MOST_TASKS = 100
"""Maximum tasks that a worker registers."""
NAME_LENGTH = 100
"""Maximum characters of each task's name."""


USUAL_LEASE_MS = 30_000
"""The lease of workers whose options set no other."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a taker needs before its first job.

    Attributes:
        dead_letter_queue: The queue for the dead letters of this one; empty without one.
        server_ms: The server's time, epoch ms.
    """

    dead_letter_queue: str
    server_ms: int


def open_queue(keys: QueueKeys) -> Conversation[Opening]:
    """Create the workers' group if needed, and read what takers need. One exchange."""
    stored = queue_settings.stored_dead_letter_queue(keys)
    began, letters, time = yield [create_group(keys), stored.call, Call("TIME", near=keys.stream)]
    if isinstance(began, ServerError) and began.code != "BUSYGROUP":
        raise began
    letters, time = all_good([letters, time])
    return Opening(stored.read(letters) or "", read_time(time))


def count_workers(keys: QueueKeys) -> Conversation[int]:
    """Count the consumers of the stream that are registered workers, of any library. Scans no keys; two exchanges."""
    (described,) = yield [Call("XINFO", args=("CONSUMERS", keys.stream, GROUP), near=keys.stream)]
    if isinstance(described, ServerError):
        return 0
    consumers = [dict(zip(facts[::2], facts[1::2], strict=True)) for facts in described]
    names = {text(facts[b"name"]) for facts in consumers} - {TAKER}
    if not names:
        return 0
    (registered,) = all_good((yield [Call("EXISTS", tuple(map(keys.worker, sorted(names))))]))
    return integer(registered)


def has_worker(keys: QueueKeys) -> Conversation[bool]:
    """Return whether a consumer of the stream is a registered worker: workers recover stalled jobs themselves."""
    return (yield from count_workers(keys)) > 0
