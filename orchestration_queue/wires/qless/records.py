"""The server's records as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Reply
from orchestration_queue.protocol.record import JobRecord

__all__ = [
    "Durations",
    "QlessCounts",
    "QlessEvent",
    "QlessFailure",
    "QlessJob",
    "QlessRecurringJob",
    "QlessStats",
    "QlessWorkerCounts",
    "decode_json",
    "read_event",
    "read_jobs",
    "strings",
]


def decode_json(reply: Reply) -> Any:
    """Read JSON.

    Raises:
        ServerError: It is not JSON.
    """
    try:
        return json.loads(reply)
    except (TypeError, ValueError) as error:
        raise ServerError(f"The server's reply is not JSON: {reply!r}.") from error


def strings(found: Any) -> list[str]:
    """Read a list of text; the server writes an empty one as an object."""
    return [str(item) for item in found or ()]


def moment(seconds: float) -> datetime | None:
    """Read a time; 0 means never."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, ValueError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class QlessFailure:
    """Why a job failed.

    Attributes:
        group: The kind of failure.
        message: What happened.
        at: When.
        worker: The worker that ran it; empty if it lost the job.
    """

    group: str
    message: str
    at: datetime | None
    worker: str


@dataclass(frozen=True, slots=True)
class QlessJob:
    """A job as it was when it was read.

    Attributes:
        jid: Its id.
        klass: What runs it.
        queue: Its queue; empty once it is complete.
        state: ``waiting``, ``running``, ``scheduled``, ``depends``, ``complete``, ``failed`` or ``stalled``.
        data: Its data.
        priority: Higher values come first.
        worker: The worker that runs it; empty without one.
        expires: When its lock expires.
        retries: How often it may be lost or retried.
        remaining: How many of these are left; -1 if it has failed for lack of them.
        tags: Its tags.
        history: What happened to it, oldest first: ``what``, ``when`` and more.
        failure: Its last failure, until it is complete.
        dependents: Ids of the jobs that wait for it.
        dependencies: Ids of the jobs that it waits for.
        is_tracked: Whether its events are published.
        spawned_from: The recurring job that added it.
        encoded: Its data as JSON, byte for byte.
    """

    jid: str
    klass: str
    queue: str
    state: str
    data: Any
    priority: float = 0
    worker: str = ""
    expires: datetime | None = None
    retries: int = 0
    remaining: int = 0
    tags: tuple[str, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    failure: QlessFailure | None = None
    dependents: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    is_tracked: bool = False
    spawned_from: str | None = None
    encoded: str = field(default="{}", repr=False)

    @property
    def id(self) -> str:
        """Its id, as jobs of other queues have it."""
        return self.jid

    @property
    def record(self) -> JobRecord:
        """The job as :class:`orchestration_queue.tasks.Tasks` reads it."""
        attempts_made = str(max(0, self.retries - self.remaining))
        return JobRecord(self.jid, {"name": self.klass, "data": self.encoded, "attemptsMade": attempts_made})

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> QlessJob:
        """Read a job.

        Raises:
            ServerError: A field is missing, or its data is not JSON.
        """
        try:
            return cls(
                jid=str(fields["jid"]),
                klass=fields["klass"],
                queue=fields["queue"],
                state=fields["state"],
                data=json.loads(fields["data"]),
                priority=fields["priority"],
                worker=fields["worker"],
                expires=moment(fields["expires"]),
                retries=int(fields["retries"]),
                remaining=int(fields["remaining"]),
                tags=tuple(strings(fields["tags"])),
                history=tuple(fields["history"] or ()),
                failure=_failure(fields["failure"]),
                dependents=tuple(strings(fields["dependents"])),
                dependencies=tuple(strings(fields["dependencies"])),
                is_tracked=fields["tracked"],
                spawned_from=fields["spawned_from_jid"] or None,
                encoded=fields["data"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError(f"Job {fields.get('jid')!r} cannot be read: {error!r}.") from error


def _failure(found: Mapping[str, Any] | None) -> QlessFailure | None:
    if not found:
        return None
    worker = found.get("worker") or ""
    return QlessFailure(str(found["group"]), str(found["message"]), moment(found["when"]), worker)


def read_jobs(reply: Reply) -> list[QlessJob]:
    """Read an array of jobs."""
    return [QlessJob.read(fields) for fields in decode_json(reply) or ()]


@dataclass(frozen=True, slots=True)
class QlessRecurringJob:
    """A job that adds a new job at each interval.

    Attributes:
        jid: Its id; a new job's id is this one with a number.
        klass: What runs the new jobs.
        queue: Where they go.
        data: Their data.
        interval: Seconds between two.
        priority: Their priority.
        retries: Their retries.
        count: How many it has added.
        tags: Their tags.
        backlog: How many late jobs are made up for, in addition to the newest; 0 for all.
    """

    jid: str
    klass: str
    queue: str
    data: Any
    interval: float
    priority: float
    retries: int
    count: int
    tags: tuple[str, ...]
    backlog: int

    @classmethod
    def read(cls, reply: Reply) -> QlessRecurringJob:
        """Read a recurring job."""
        fields = decode_json(reply)
        names = ("jid", "klass", "queue", "interval", "priority", "retries", "count", "backlog")
        data, tags = json.loads(fields["data"]), tuple(strings(fields["tags"]))
        return cls(**{name: fields[name] for name in names}, data=data, tags=tags)


@dataclass(frozen=True, slots=True)
class QlessCounts:
    """A queue and how many jobs of each state it has."""

    name: str
    waiting: int
    running: int
    stalled: int
    scheduled: int
    depends: int
    recurring: int
    paused: bool

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> QlessCounts:
        """Read what the server counted."""
        return cls(**{name: fields[name] for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class QlessWorkerCounts:
    """A worker, how many jobs it has, and how many it has lost or is about to lose."""

    name: str
    jobs: int
    stalled: int


@dataclass(frozen=True, slots=True)
class Durations:
    """How long jobs waited or ran on a day: seconds, and how many fell into each bucket."""

    count: int
    mean: float
    std: float
    histogram: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class QlessStats:
    """A queue's day.

    Attributes:
        retries: How many locks expired.
        failed: How many of the day's failed jobs still are.
        failures: How many jobs failed.
        wait: How long jobs waited.
        run: How long they ran.
    """

    retries: int
    failed: int
    failures: int
    wait: Durations
    run: Durations

    @classmethod
    def read(cls, reply: Reply) -> QlessStats:
        """Read statistics."""
        found = decode_json(reply)
        wait, run = (
            Durations(found[kind]["count"], found[kind]["mean"], found[kind]["std"], tuple(found[kind]["histogram"]))
            for kind in ("wait", "run")
        )
        return cls(found["retries"], found["failed"], found["failures"], wait, run)


@dataclass(frozen=True, slots=True)
class QlessEvent:
    """One message.

    Attributes:
        channel: Its channel without ``ql:``: ``log``, ``completed``, ``w:<worker>`` and so on.
        name: What happened.
        jid: The job, if it is about one.
        fields: All it says.
    """

    channel: str
    name: str
    jid: str | None
    fields: Mapping[str, Any]


def read_event(channel: bytes, payload: bytes) -> QlessEvent:
    """Read a message: JSON on the log and the workers' channels, else a job's id."""
    short = channel.decode(errors="replace").removeprefix("ql:")
    text = payload.decode(errors="replace")
    if short == "log" or short.startswith("w:"):
        fields = decode_json(text)
        return QlessEvent(short, fields.get("event", ""), fields.get("jid"), fields)
    return QlessEvent(short, short, text, {"jid": text})
