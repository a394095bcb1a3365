"""Assertions about the jobs in a queue, with messages that list the actual ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from reprlib import Repr
from typing import Any, TypedDict, Unpack

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.errors import PayloadError, UsageError
from orchestration_queue.options import Duration, milliseconds, seconds, wire_number
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.operations.keyspace import queue_pattern, scan
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState
from orchestration_queue.tasks import Task

__all__ = ["JobCriteria", "assert_enqueued", "assert_failed", "assert_not_enqueued", "enqueued"]

_ANYTHING: Any = object()
_MOST_SHOWN = 20

_CRITERIA: Mapping[str, Callable[[JobRecord], Any]] = {
    "tags": lambda job: job.tags,
    "share": lambda job: job.share,
    "pools": lambda job: job.pools,
    "tracked": lambda job: job.is_tracked,
    "kind": lambda job: job.failure_kind,
}

_short = Repr()
_short.maxstring, _short.maxother, _short.maxdict, _short.maxlist = 120, 200, 20, 20


class JobCriteria(TypedDict, total=False):
    """Further criteria for jobs."""

    tags: Collection[str]
    """Tags that they have, among others."""
    share: str
    """The share that they belong to."""
    pools: Mapping[str, int]
    """The slots that they hold while they run, by pool."""
    tracked: bool
    """Whether retention keeps them."""
    kind: str
    """The kind of failure of their last attempt."""


def enqueued(queue: Queue | AsyncQueue) -> list[JobRecord]:
    """Return the jobs of a queue that have not finished: ready, delayed, running, or waiting for others.

    A plain call also for async queues, so that an await can't be forgotten. It scans all keys of the server.

    Returns:
        The jobs in the order in which they were added.
    """
    return [record for record in _jobs(queue) if not record.is_finished]


def assert_enqueued(
    queue: Queue | AsyncQueue,
    name: str | Task[..., Any] | None = None,
    *,
    data: Any = _ANYTHING,
    count: int | None = None,
    job_id: str | None = None,
    delay: Duration | None = None,
    priority: int | None = None,
    where: Callable[[JobRecord], object] | None = None,
    **criteria: Unpack[JobCriteria],
) -> list[JobRecord]:
    """Assert that matching jobs are in the queue and have not finished.

    Args:
        queue: The queue, sync or async.
        name: The jobs' name, or their task; None matches every name.
        data: Their data, equal to this; parts may be :data:`unittest.mock.ANY`.
        count: How many there must be, exactly; None requires at least one.
        job_id: Their id.
        delay: The delay they were added with.
        priority: Their priority.
        where: A further condition on their records.
        **criteria: ``tags``, ``share``, ``pools``, ``tracked``, ``kind``, see :class:`JobCriteria`.

    Returns:
        The matching jobs, in the order in which they were added.

    Raises:
        AssertionError: There are fewer or more. The message lists the actual jobs, and how they differ.
    """
    __tracebackhide__ = True
    wanted = _Wanted(name, data, job_id, delay, priority, where, criteria)
    jobs = _jobs(queue)
    found = [job for job in jobs if not job.is_finished and wanted.matches(job)]
    if (found and count is None) or len(found) == count:
        return found
    raise AssertionError(
        f"Queue {queue.name!r} should hold {_word_count(count)} {wanted}, and holds {len(found)}.\n"
        + _list_jobs(jobs, wanted)
    )


def assert_failed(
    queue: Queue | AsyncQueue,
    name: str | Task[..., Any] | None = None,
    *,
    data: Any = _ANYTHING,
    count: int | None = None,
    job_id: str | None = None,
    where: Callable[[JobRecord], object] | None = None,
    **criteria: Unpack[JobCriteria],
) -> list[JobRecord]:
    """Assert that matching jobs failed for good.

    Args:
        queue: The queue, sync or async.
        name: The jobs' name, or their task; None matches every name.
        data: Their data, equal to this; parts may be :data:`unittest.mock.ANY`.
        count: How many there must be, exactly; None requires at least one.
        job_id: Their id.
        where: A further condition on their records, such as on their ``failed_reason``.
        **criteria: ``kind``, ``tags``, ``share``, ``pools``, ``tracked``, see :class:`JobCriteria`.

    Returns:
        The matching jobs, in the order in which they were added.

    Raises:
        AssertionError: There are fewer or more. The message lists what failed, with kind and reason.
    """
    __tracebackhide__ = True
    wanted = _Wanted(name, data, job_id, None, None, where, criteria)
    failed = [job for job in _jobs(queue) if job.state is JobState.FAILED]
    found = [job for job in failed if wanted.matches(job)]
    if (found and count is None) or len(found) == count:
        return found
    lines = [f"{_line(job)}, {job.failure_kind}: {job.failed_reason}" for job in failed[:_MOST_SHOWN]]
    raise AssertionError(
        f"Queue {queue.name!r} should have {_word_count(count)} {wanted} that failed, and has {len(found)}.\n"
        + "\n".join([f"It has {len(failed)} that failed:" if failed else "None failed.", *lines])
    )


def assert_not_enqueued(
    queue: Queue | AsyncQueue,
    name: str | Task[..., Any] | None = None,
    *,
    data: Any = _ANYTHING,
    job_id: str | None = None,
    where: Callable[[JobRecord], object] | None = None,
    **criteria: Unpack[JobCriteria],
) -> None:
    """Assert that no matching job is in the queue, other than finished ones; without criteria, no job at all.

    Args:
        queue: The queue, sync or async.
        name: The jobs' name, or their task; None matches every name.
        data: Their data, equal to this; parts may be :data:`unittest.mock.ANY`.
        job_id: Their id.
        where: A further condition on their records.
        **criteria: ``tags``, ``share``, ``pools``, ``tracked``, ``kind``, see :class:`JobCriteria`.

    Raises:
        AssertionError: There is one. The message lists them.
    """
    __tracebackhide__ = True
    wanted = _Wanted(name, data, job_id, None, None, where, criteria)
    found = [job for job in enqueued(queue) if wanted.matches(job)]
    if found:
        lines = "\n".join(map(_line, found[:_MOST_SHOWN]))
        raise AssertionError(f"Queue {queue.name!r} should hold no job {wanted}, and holds {len(found)}:\n{lines}")


def _jobs(queue: Queue | AsyncQueue) -> list[JobRecord]:
    """Return all jobs of a queue, in the order in which they were added."""
    keys = queue.keys
    with Connection.open(queue.url) as connection:
        found = connection.follow(scan(queue_pattern(keys, "job:*"), keys.stream))
        ids = [key.removeprefix(keys.job("")) for key in found]
        records = connection.follow(job_records.jobs([(keys, job_id) for job_id in ids if ":" not in job_id]))
    # Ids that the queue gave count up; others follow the time.
    return sorted(
        (record for record in records if record is not None),
        key=lambda record: (record.fields.get("timestamp", "").zfill(20), record.id.zfill(20), record.id),
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The criteria of an assertion."""

    task: str | Task[..., Any] | None
    data: Any
    job_id: str | None
    delay: Duration | None
    priority: int | None
    where: Callable[[JobRecord], object] | None
    criteria: JobCriteria

    def __post_init__(self) -> None:
        for name, value in self.criteria.items():
            if name not in _CRITERIA:
                raise UsageError(f"Criterion {name!r} is unknown; pass {', '.join(_CRITERIA)}, or `where`.")
            if name == "tags" and isinstance(value, str):
                raise UsageError(f"`tags` must be a list of tags, got {value!r}; pass `tags=[{value!r}]`.")

    @property
    def name(self) -> str | None:
        return self.task.name if isinstance(self.task, Task) else self.task

    def matches(self, job: JobRecord) -> bool:
        return self.is_kind_of(job) and not self.differences(job)

    def is_kind_of(self, job: JobRecord) -> bool:
        """Whether a job has the right name."""
        return self.name is None or job.name == self.name

    def differences(self, job: JobRecord) -> list[str]:
        """Return how a job differs from the criteria, apart from the name; one line each."""
        lines: list[str] = []
        if self.data is not _ANYTHING:
            lines += _data_differences(self.data, job)
        if self.job_id is not None and job.id != self.job_id:
            lines.append(f"id: {job.id!r} instead of {self.job_id!r}")
        if self.delay is not None and (delay := _delay(job)) != milliseconds(self.delay):
            lines.append(f"delay: {delay / 1000:g} s instead of {seconds(self.delay):g} s")
        if self.priority is not None and job.priority != self.priority:
            lines.append(f"priority: {job.priority} instead of {self.priority}")
        for name, value in self.criteria.items():
            found = _CRITERIA[name](job)
            if not (set(value) <= set(found) if name == "tags" else found == value):  # type: ignore[call-overload]
                lines.append(f"{name}: {_short.repr(found)} instead of {_short.repr(value)}")
        if self.where is not None and not lines and not self.where(job):
            lines.append(f"{getattr(self.where, '__name__', 'where')} does not hold")
        return lines

    def __str__(self) -> str:
        criteria = {
            "named": self.name,
            "with id": self.job_id,
            "delayed by": self.delay,
            "of priority": self.priority,
        }
        words = [f"{word} {value!r}" for word, value in criteria.items() if value is not None]
        words += [f"with {name} {value!r}" for name, value in self.criteria.items()]
        if self.data is not _ANYTHING:
            words.append(f"with data {_short.repr(self.data)}")
        if self.where is not None:
            words.append("for which `where` holds")
        return " ".join(words) or "of any name"


def _word_count(count: int | None) -> str:
    return "at least one job" if count is None else f"{count} job{'' if count == 1 else 's'}"


def _delay(job: JobRecord) -> float:
    return wire_number(job.options.get("delay"))


def _data_differences(wanted: Any, job: JobRecord) -> list[str]:
    try:
        data = job.data
    except PayloadError as error:
        return [f"data: cannot be read ({error})"]
    if data == wanted:
        return []
    if not (isinstance(data, Mapping) and isinstance(wanted, Mapping)):
        return [f"data: {_short.repr(data)} instead of {_short.repr(wanted)}"]
    lines = []
    for key in {**wanted, **data}:
        if key not in data:
            lines.append(f"data[{key!r}]: missing, should be {_short.repr(wanted[key])}")
        elif key not in wanted:
            lines.append(f"data[{key!r}]: {_short.repr(data[key])}, should not be there")
        elif data[key] != wanted[key]:
            lines.append(f"data[{key!r}]: {_short.repr(data[key])} instead of {_short.repr(wanted[key])}")
    return lines


def _line(job: JobRecord) -> str:
    try:
        data = _short.repr(job.data)
    except PayloadError:
        data = "that cannot be read"
    return f"  {job.id}: {job.name!r}, {job.state}, data {data}"


def _list_jobs(jobs: list[JobRecord], wanted: _Wanted) -> str:
    """Return the actual jobs, those with the right name first."""
    unfinished = sorted(
        (job for job in jobs if not job.is_finished), key=lambda job: (not wanted.is_kind_of(job), wanted.matches(job))
    )
    lines = [f"It holds {len(unfinished)} unfinished:"] if unfinished else ["Nothing unfinished is there."]
    for job in unfinished[:_MOST_SHOWN]:
        lines.append(_line(job))
        if wanted.is_kind_of(job):
            lines += [f"      {difference}" for difference in wanted.differences(job) or ["matches"]]
    if len(unfinished) > _MOST_SHOWN:
        lines.append(f"  ... and {len(unfinished) - _MOST_SHOWN} more")
    done = [job for job in jobs if job.is_finished and wanted.matches(job)]
    if done:
        lines.append("These match, but have finished already:")
        lines += map(_line, done[:_MOST_SHOWN])
    return "\n".join(lines)
