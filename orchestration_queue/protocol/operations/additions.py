"""Additions: what a job to add says on the wire, and which job its adder now has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

from orchestration_queue.errors import InvalidOptionError, ServerError, StateError
from orchestration_queue.options import JobOptions, milliseconds
from orchestration_queue.protocol.call import Call, Operation, Reply, optional_text, text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.placement import ParentRef, add_job, add_jobs, new_job
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = [
    "DUPLICATE",
    "Added",
    "Addition",
    "Outcome",
    "add",
    "add_many",
    "add_own",
    "as_sent",
    "join_parent",
    "portions",
    "read_each",
    "read_node_reply",
    "standing_job",
]

_REPLY_WORDS = frozenset({"duplicate", "skipped"})

_PORTION_JOBS = 300
"""Most jobs of one call: adding one costs the server up to 30 us, and no call may hold it above 10 ms."""

_PORTION_LENGTH = 4 * 1024 * 1024


NewT = TypeVar("NewT", "Addition", oq1.NewJob)


@dataclass(frozen=True, slots=True)
class Added:
    """What became of one job that was to be added.

    Attributes:
        job_id: The job: the new one, or the one that was there under its custom id. None when a deduplication id
            stood in the way; :func:`standing_job` then finds the job that stands for it.
        is_new: Whether the job was created now.
    """

    job_id: str | None
    is_new: bool


Outcome: TypeAlias = Added | ServerError | InvalidOptionError
"""What became of one of many, or why it was refused while others were not."""


@dataclass(frozen=True, slots=True)
class Addition:
    """One job of many that are to be added.

    Attributes:
        name: What kind of job it is.
        data_text: Its encoded payload.
        options: How it is placed.
        parent: The job that waits for it.
        options_text: The options as another client wrote them, stored instead of ours.

    Raises:
        InvalidOptionError: The job id is a word by which the server answers.
    """

    name: str
    data_text: str
    options: JobOptions
    parent: ParentRef | None = None
    options_text: str | None = None

    def __post_init__(self) -> None:
        if self.options.job_id in _REPLY_WORDS:
            raise InvalidOptionError(
                f"Job id {self.options.job_id!r} is a word by which the server answers, so that a new job could not be "
                "told from an old one; use another."
            )

    @property
    def is_plain(self) -> bool:
        """Whether it can be added in one call with others."""
        return self.parent is None and self.options.deduplication is None

    @property
    def is_unannounced(self) -> bool:
        """Whether no entry of the stream tells the workers of it: it is delayed, prioritized or LIFO."""
        options = self.options
        return bool(options.delay or options.delay_until or options.priority or options.lifo)


def portions(jobs: Sequence[NewT]) -> Iterator[Sequence[NewT]]:
    """Cut many jobs into portions that one call or trip can carry without keeping others waiting."""
    start = size = 0
    for place, job in enumerate(jobs):
        length = len(job.data if isinstance(job, oq1.NewJob) else job.data_text)
        size += length
        if place > start and (place - start >= _PORTION_JOBS or size > _PORTION_LENGTH):
            yield jobs[start:place]
            start, size = place, length
    if jobs:
        yield jobs[start:]


def add(keys: QueueKeys, job: Addition, now_ms: int, *, skip_events: bool = False) -> Operation[Added]:
    """Add one job."""
    call = add_job(
        keys,
        job.name,
        job.data_text,
        job.options,
        now_ms,
        parent=job.parent,
        options_text=job.options_text,
        skip_events=skip_events,
    )
    return Operation(call, partial(_read, keys, job))


def add_many(
    keys: QueueKeys, jobs: Sequence[Addition], now_ms: int, *, skip_events: bool = False
) -> Operation[list[Outcome]]:
    """Add many plain jobs in one call."""
    new = (new_job(job.name, job.data_text, job.options, now_ms, options_text=job.options_text) for job in jobs)
    call = add_jobs(keys, new, skip_events=skip_events)
    return Operation(call, lambda reply: read_each(keys, jobs, reply))


def add_own(keys: QueueKeys, jobs: Sequence[oq1.NewJob], *, skip_events: bool = False) -> Operation[int]:
    """Add many jobs with ids of their own in one call, and say how many are new; the others were there already.

    Calling it again adds nothing, as long as the jobs are kept. When one is refused, the others are added nevertheless.
    """
    call = add_jobs(keys, jobs, skip_events=skip_events)

    def read(replies: list[Reply]) -> int:
        for job, reply in zip(jobs, replies, strict=True):
            if reply.startswith(b"ERR:"):
                _word(keys, job.job_name, reply)
        return len(jobs) - replies.count(b"duplicate")

    return Operation(call, read)


def read_each(keys: QueueKeys, jobs: Sequence[Addition], replies: Sequence[Reply]) -> list[Outcome]:
    """Read the reply to each of many jobs; one that was refused hides none of the others."""
    return [_outcome(keys, job, reply) for job, reply in zip(jobs, replies, strict=True)]


def _outcome(keys: QueueKeys, job: Addition, reply: Reply) -> Outcome:
    if isinstance(reply, ServerError):
        return reply
    try:
        return _read(keys, job, reply)
    except (ServerError, InvalidOptionError) as error:
        return error


def _read(keys: QueueKeys, job: Addition, reply: Reply) -> Added:
    match word := _word(keys, job.name, reply):
        case "duplicate":
            return Added(job.options.job_id, is_new=False)
        case "skipped":
            return Added(None, is_new=False)
    return Added(word, is_new=True)


def _word(keys: QueueKeys, name: str, reply: Reply) -> str:
    """What the server answered for one job, when it did not refuse it."""
    match word := text(reply):
        case "ERR:COST_EXCEEDS_CAPACITY":
            raise InvalidOptionError(
                f"Job {name!r} costs more than its token bucket holds, so it could never start; "
                "lower its cost or raise the capacity."
            )
        case _ if not word or word.startswith("ERR:"):
            raise ServerError(
                f"The server answered {word!r} when a job was added to queue {keys.queue!r}, so it was not added; "
                "check the server's function library with `oq library status`."
            )
    return word


def standing_job(keys: QueueKeys, dedup_id: str) -> Operation[str]:
    """The job that stands for a deduplication id."""

    def read(reply: Reply) -> str:
        if stored := optional_text(reply):
            return stored.partition(":")[0]
        raise StateError(
            f"Queue {keys.queue!r} skipped a job for its deduplication id {dedup_id!r}, and the job that stood for "
            "it was forgotten meanwhile; add it again."
        )

    return Operation(Call("HGET", (keys.dedup,), (dedup_id,)), read)


def join_parent(parent: ParentRef, member: str) -> Call:
    """Tell a parent of another queue that it waits for one more job."""
    return Call("SADD", (parent.deps_key,), (member,))


DUPLICATE: Final = ("duplicate", '["duplicate"]')
"""The replies of ``glidemq_addJob`` and ``glidemq_addFlow`` when a job of the id is there from before."""


def read_node_reply(node: str, call: Call, reply: Reply) -> bool:
    """Read the reply to one call of a flow's submission; whether the node's job is there from before.

    Raises:
        ServerError: The node could not be created or wired.
    """
    if not call.is_function:
        return False
    word = text(reply)
    if word in DUPLICATE:
        return True
    if word.startswith(("ERR:", '["ERR:', "error:")):
        raise ServerError(
            f"The server answered {word} to {call.name} for node {node!r}, so the flow cannot finish; remove what was "
            "added of it with `Flow.cancel()`, and submit it under another id."
        )
    return False


def as_sent(job_id: str, job: Addition, now_ms: int) -> JobRecord:
    """The record of a job that was just created, without reading it back."""
    options = job.options.at(now_ms)
    fields: Mapping[str, str] = {
        "id": job_id,
        "name": job.name,
        "data": job.data_text,
        "opts": dump_json(options.wire()) if job.options_text is None else job.options_text,
        "timestamp": str(now_ms),
        "attemptsMade": "0",
        "delay": str(milliseconds(options.delay)),
        "priority": str(options.priority),
        "maxAttempts": str(options.attempts),
        "state": _first_state(options),
    }
    return JobRecord(job_id, fields)


def _first_state(options: JobOptions) -> JobState:
    if options.delay:
        return JobState.DELAYED
    return JobState.PRIORITIZED if options.priority else JobState.WAITING
