"""Add jobs: encode new jobs as calls, and read which jobs the caller now has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from orchestration_queue.errors import InvalidOptionError, ServerError, StateError, UsageError
from orchestration_queue.options import MAX_TAGS, JobOptions
from orchestration_queue.options.job import NO_OPTIONS
from orchestration_queue.protocol.call import Call, Operation, Reply, optional_text, text
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.worker_signals import wake_for_due, wake_worker
from orchestration_queue.protocol.placement import Forms, ParentRef, add_job, add_jobs, new_job
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = [
    "DUPLICATE",
    "Added",
    "EncodedData",
    "GivenOptions",
    "GivenParent",
    "NewJob",
    "Outcome",
    "add",
    "add_many",
    "add_own",
    "as_options",
    "as_sent",
    "deduplicated_job",
    "is_unannounced",
    "join_parent",
    "portions",
    "read_added",
    "read_each",
    "read_node_reply",
    "waking",
]

_REPLY_WORDS = frozenset({"duplicate", "skipped"})

_PORTION_JOBS = 100
"""Most jobs of one call: adding a plain one costs the server up to 30 us, and no call may hold it above 10 ms."""

_PORTION_WORK = 150
"""Most work of one call, where a plain job is 1. A tag takes 50 us, and so does a place in a
share, in an ordering group, among deduplicated jobs, or below a parent."""
_TAG_WORK = _PLACE_WORK = 2

_PORTION_LENGTH = 4 * 1024 * 1024


NewT = TypeVar("NewT", "NewJob", oq1.NewJob)


class Added(NamedTuple):
    """The server's reply for one job to add. A tuple, since one is built per job.

    Attributes:
        job_id: The job: the new one, or the existing one with its custom id. None if its deduplication id exists;
            :func:`deduplicated_job` then finds the job with it.
        is_new: Whether the job was created now.
    """

    job_id: str | None
    is_new: bool


Outcome: TypeAlias = Added | ServerError | InvalidOptionError
"""The server's reply for one of many jobs, or why that one was refused."""


class EncodedData(str):
    """A payload that a codec has written already, stored unchanged."""

    __slots__ = ()


class HasRef(Protocol):
    """A job that others can name as their parent."""

    @property
    def ref(self) -> ParentRef:
        """Its reference."""
        ...


GivenOptions: TypeAlias = JobOptions | Mapping[str, Any] | None
"""Job options as callers may pass them."""

GivenParent: TypeAlias = ParentRef | HasRef | None
"""A parent as callers may pass it."""


@dataclass(frozen=True, slots=True, init=False)
class NewJob:
    """A job to be added.

    Attributes:
        name: The kind of job: the task's name.
        data: Its payload, anything the queue's codec can write, or a pydantic model.
        options: How it is placed, retried, limited and kept; or a dict of these options.
        parent: The job that waits for it, or its :attr:`Job.ref`.
        options_text: The options as another client wrote them, stored instead of ours.

    Raises:
        UsageError: The name is empty, another argument has a wrong type, or the job id is a word that the server uses
            in replies.
    """

    name: str
    data: Any
    options: JobOptions
    parent: ParentRef | None
    options_text: str | None

    def __init__(
        self,
        name: str,
        data: Any = None,
        options: GivenOptions = None,
        parent: GivenParent = None,
        options_text: str | None = None,
    ) -> None:
        # Encoded data may come from another client, whose jobs need no name.
        if not isinstance(name, str) or not (name or isinstance(data, EncodedData)):
            raise UsageError(f"`name` must be a non-empty string, got {name!r}.")
        if options is None:
            options = NO_OPTIONS
        elif not isinstance(options, JobOptions):
            options = as_options(options)
        if parent is not None and not isinstance(parent, ParentRef):
            parent = _check_parent(parent)
        if options.job_id in _REPLY_WORDS:
            raise InvalidOptionError(f"Job id {options.job_id!r} is reserved for replies of the server; use another.")
        write = object.__setattr__
        write(self, "name", name)
        write(self, "data", data)
        write(self, "options", options)
        write(self, "parent", parent)
        write(self, "options_text", options_text)

    @property
    def is_plain(self) -> bool:
        """Whether it can be added in one call with others."""
        return self.parent is None and self.options.deduplication is None

    @property
    def is_delayed(self) -> bool:
        """Whether it is due later, at a time that a worker must know."""
        return bool(self.options.delay or self.options.delay_until)


def is_unannounced(options: JobOptions) -> bool:
    """Whether no stream entry announces such a job to the workers: it is delayed, prioritized or LIFO."""
    return bool(options.delay or options.delay_until or options.priority or options.lifo)


def waking(keys: QueueKeys, jobs: Iterable[NewJob], now_ms: int) -> list[Call]:
    """Return the signal to an idle worker for jobs that no stream entry announces: ready ones, or a new due time."""
    # Most jobs of a bulk share their options, which take longer to read than to find by identity.
    unannounced = [job for job in {id(job.options): job for job in jobs}.values() if is_unannounced(job.options)]
    if any(job.is_delayed for job in unannounced):
        return [wake_for_due(keys, now_ms)]
    return [wake_worker(keys)] if unannounced else []


def portions(jobs: Sequence[NewT]) -> Iterator[Sequence[NewT]]:
    """Divide many jobs into batches that one call or exchange can carry without delaying other clients."""
    start = size = work = 0
    known: dict[object, int] = {}  # most jobs of a bulk share their options
    for place, job in enumerate(jobs):
        options = job.options if isinstance(job, NewJob) else job.opts
        key = options if isinstance(options, str) else id(options)
        if (own_work := known.get(key)) is None:
            own_work = known[key] = _work_of(options)
        if isinstance(job, NewJob) and job.parent is not None:
            own_work += _PLACE_WORK
        length = len(job.data)
        size, work = size + length, work + own_work
        if place > start and (place - start >= _PORTION_JOBS or size > _PORTION_LENGTH or work > _PORTION_WORK):
            yield jobs[start:place]
            start, size, work = place, length, own_work
    if jobs:
        yield jobs[start:]


def _work_of(options: JobOptions | str) -> int:
    """Return how much work adding a job with these options is for the server, in plain jobs."""
    if not isinstance(options, str):
        places = (options.share, options.ordering, options.deduplication)
        return 1 + _TAG_WORK * len(options.tags) + _PLACE_WORK * sum(place is not None for place in places)
    if '"tags"' not in options:
        return 1
    try:
        tags = json.loads(options).get("tags")
    except (ValueError, AttributeError):  # the server refuses it
        return 1
    return 1 + _TAG_WORK * (min(len(tags), MAX_TAGS) if isinstance(tags, list) else 0)


def add(keys: QueueKeys, job: NewJob, now_ms: int, *, skip_events: bool = False) -> Operation[Added]:
    """Add one job."""
    if job.options.share is not None and job.is_plain:
        # By our own library: glide-mq's, which may be loaded instead of ours, has no shares.
        many = add_many(keys, [job], now_ms, skip_events=skip_events)
        return Operation(many.call, partial(read_added, keys, job))
    call = add_job(
        keys,
        job.name,
        job.data,
        job.options,
        now_ms,
        parent=job.parent,
        options_text=job.options_text,
        skip_events=skip_events,
    )
    return Operation(call, partial(read_added, keys, job))


def add_many(
    keys: QueueKeys, jobs: Sequence[NewJob], now_ms: int, *, skip_events: bool = False
) -> Operation[list[Outcome]]:
    """Add many plain jobs in one call."""
    forms = Forms()
    alike: dict[tuple[str, int, str | None], oq1.BulkJob] = {}
    bulk = []
    for job in jobs:
        # Most jobs of a call share name and options, which take longer to compare than to find by identity.
        same = alike.get(key := (job.name, id(job.options), job.options_text))
        if same is None:
            new = new_job(job.name, job.data, job.options, now_ms, options_text=job.options_text)
            same = alike[key] = forms.job(new)
        bulk.append(oq1.BulkJob(same.form, job.data, same.opts, same.custom_id))
    return Operation(forms.add(keys, bulk, skip_events=skip_events), lambda reply: read_each(keys, jobs, reply))


def add_own(keys: QueueKeys, jobs: Sequence[oq1.NewJob], *, skip_events: bool = False) -> Operation[int]:
    """Add many jobs with custom ids in one call; read how many are new. The others already existed.

    Calling it again adds nothing, as long as the jobs are kept. If one is refused, the others are added nevertheless.
    """
    call = add_jobs(keys, jobs, skip_events=skip_events)

    def read(replies: list[Reply]) -> int:
        for job, reply in zip(jobs, replies, strict=True):
            if reply.startswith(b"ERR:"):
                raise _refusal(keys, job.job_name, text(reply))
        return len(jobs) - replies.count(b"duplicate")

    return Operation(call, read)


def read_each(keys: QueueKeys, jobs: Sequence[NewJob], replies: Sequence[Reply]) -> list[Outcome]:
    """Read the reply for each of many jobs. A refused job doesn't affect the others."""
    return [_outcome(keys, job, reply) for job, reply in zip(jobs, replies, strict=True)]


def _outcome(keys: QueueKeys, job: NewJob, reply: Reply) -> Outcome:
    if isinstance(reply, ServerError):
        return reply
    try:
        return read_added(keys, job, reply)
    except (ServerError, InvalidOptionError) as error:
        return error


def read_added(keys: QueueKeys, job: NewJob, reply: Reply) -> Added:
    """Read the reply to the addition of one job.

    Raises:
        InvalidOptionError: The job costs more than its token bucket holds.
        ServerError: The server refused it.
    """
    if isinstance(reply, list):  # of a call that can add many
        (reply,) = reply
    word = reply.decode() if isinstance(reply, bytes) else str(reply)
    if word == "duplicate":
        return Added(job.options.job_id, is_new=False)
    if word == "skipped":
        return Added(None, is_new=False)
    if not word or word.startswith("ERR:"):
        raise _refusal(keys, job.name, word)
    return Added(word, is_new=True)


def as_options(options: GivenOptions) -> JobOptions:
    """Return job options, passed as such or as a dict.

    Raises:
        InvalidOptionError: A value is outside its limits, an option does not exist, or these are not options.
    """
    if options is None:
        return NO_OPTIONS
    if isinstance(options, JobOptions):
        return options
    if isinstance(options, Mapping) and all(isinstance(name, str) for name in options):
        return JobOptions(**options)
    raise InvalidOptionError(f"`options` must be JobOptions or a dict of them, got {options!r}; pass JobOptions(...).")


def _check_parent(parent: object) -> ParentRef:
    ref = getattr(parent, "ref", None)
    if not isinstance(ref, ParentRef):
        raise UsageError(f"`parent` must be a job or a job's `ref`, got {parent!r}; pass `parent=job`.")
    return ref


def _refusal(keys: QueueKeys, name: str, word: str) -> InvalidOptionError | ServerError:
    if word == "ERR:COST_EXCEEDS_CAPACITY":
        return InvalidOptionError(
            f"Job {name!r} costs more than its token bucket holds, so it could never start; "
            "lower its cost or raise the capacity."
        )
    return ServerError(
        f"The server answered {word!r} when a job was added to queue {keys.queue!r}, so it was not added; "
        "check the server's function library with `oq library status`."
    )


def deduplicated_job(keys: QueueKeys, dedup_id: str) -> Operation[str]:
    """Read the id of the job with a deduplication id."""

    def read(reply: Reply) -> str:
        if stored := optional_text(reply):
            return stored.partition(":")[0]
        raise StateError(
            f"Queue {keys.queue!r} skipped a job because of its deduplication id {dedup_id!r}, but the job with "
            "that id was removed meanwhile; add it again."
        )

    return Operation(Call("HGET", (keys.dedup,), (dedup_id,)), read)


def join_parent(parent: ParentRef, member: str) -> Call:
    """Register a job with its parent in another queue."""
    return Call("SADD", (parent.deps_key,), (member,))


DUPLICATE: Final = ("duplicate", '["duplicate"]')
"""The replies of ``glidemq_addJob`` and ``glidemq_addFlow`` if a job with the id already exists."""


def read_node_reply(node: str, call: Call, reply: Reply) -> bool:
    """Read the reply to one call of a flow's submission; return whether the node's job already existed.

    Raises:
        ServerError: The node could not be created or wired.
    """
    if not call.is_function:
        return False
    word = reply.decode() if isinstance(reply, bytes) else str(reply)
    if word in DUPLICATE:
        return True
    if word.startswith(("ERR:", '["ERR:', "error:")):
        raise ServerError(
            f"The server answered {word} to {call.name} for node {node!r}, so the flow can't finish; remove its "
            "jobs with `Flow.cancel()`, and submit it with another id."
        )
    return False


def as_sent(job_id: str, job: NewJob, now_ms: int) -> JobRecord:
    """Return the record of a job that was just created, without reading it back."""
    new = new_job(job.name, job.data, job.options, now_ms, parent=job.parent, options_text=job.options_text)
    fields = {
        "id": job_id,
        "name": new.job_name,
        "data": new.data,
        "opts": new.opts,
        "timestamp": str(now_ms),
        "attemptsMade": "0",
        "delay": str(new.delay_ms),
        "priority": str(new.priority),
        "maxAttempts": str(new.max_attempts),
        "state": _first_state(new),
    }
    some_have = {
        "groupKey": new.ordering_key,
        "cost": new.cost,
        "expireAt": new.ttl_ms and now_ms + new.ttl_ms,
        "parentId": new.parent_id,
        "parentQueue": new.parent_queue,
        "lifo": int(new.lifo),
        "share": job.options.share,
    }
    return JobRecord(job_id, fields | {name: str(value) for name, value in some_have.items() if value})


def _first_state(new: oq1.NewJob) -> JobState:
    if new.delay_ms:
        return JobState.DELAYED
    return JobState.PRIORITIZED if new.priority else JobState.WAITING
