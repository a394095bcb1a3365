"""Control of a queue and its jobs: pause, resume, cancel, promote, delay, release, retry, tag, clean."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from orchestration_queue.errors import JobNotFoundError, ServerError, StateError
from orchestration_queue.options import MAX_TAGS
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    chunks,
    integer,
    text,
    texts,
)
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations.notifications import PendingNotifications, read_notifications
from orchestration_queue.states import JobState

__all__ = [
    "MOST_EDGES",
    "MOST_TRACKED",
    "MOST_WITHDRAWN",
    "Cancellation",
    "cancel",
    "change_delay",
    "change_dependencies",
    "change_priority",
    "clean",
    "drain",
    "pause",
    "promote_job",
    "release",
    "remove",
    "remove_finished",
    "remove_unneeded",
    "resume",
    "retag",
    "retry",
    "retry_each",
    "retry_jobs",
    "track",
    "tracked_ids",
    "update_data",
]


MOST_WITHDRAWN = 10
"""Maximum jobs that one pipeline takes from where they wait. A server runs most of a pipeline before it serves others,
and the search for one job whose place no record names takes up to 0.5 ms."""


_MOST_RETRIED = 50
"""Maximum jobs that one pipeline retries, each of which takes up to 0.1 ms."""


class Cancellation(StrEnum):
    """What a cancellation did. The values are the wire's."""

    CANCELLED = "revoked"
    """The job had not started, and never will."""
    FLAGGED = "flagged"
    """The job is running, waits for other jobs, or is finished: it is marked, and refused if it is about to start."""


def pause(keys: QueueKeys) -> Operation[None]:
    """Stop workers from taking jobs."""
    return Operation(glidemq.pause(keys), _nothing)


def resume(keys: QueueKeys) -> Operation[None]:
    """Let the workers take jobs again."""
    return Operation(glidemq.resume(keys), _nothing)


def _nothing(_reply: Reply) -> None:
    return None


def remove(keys: QueueKeys, job_id: str, group: str = GROUP) -> Operation[bool]:
    """Remove a job in any state; read False if it does not exist. An empty ``group`` leaves its stream entry."""
    call = oq1.remove_job(keys, job_id=job_id, group=group)
    return Operation(call, lambda reply: integer(reply) == 1)


def cancel(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[Cancellation]:
    """Cancel a job. If it will never run, its dependents are decided, too."""

    def read(reply: Reply) -> Cancellation:
        word = text(reply)
        if word == "not_found":
            raise JobNotFoundError(keys.queue, job_id)
        try:
            return Cancellation(word)
        except ValueError:
            raise _build_unknown(keys, job_id, "cancelled", word) from None

    call = oq1.revoke(keys, job_id=job_id, now_ms=now_ms, group=GROUP)
    return Operation(call, read)


def promote_job(keys: QueueKeys, job_id: str) -> Operation[None]:
    """Make a delayed job ready now."""
    call = glidemq.promote_job(keys, job_key=keys.job(job_id), job_id=job_id)
    return Operation(call, lambda reply: _read_edit(keys, job_id, "promoted", reply))


def change_priority(keys: QueueKeys, job_id: str, priority: int) -> Operation[None]:
    """Change the priority of a job that has not started."""
    call = glidemq.change_priority(keys, job_key=keys.job(job_id), job_id=job_id, priority=priority, group=GROUP)
    return Operation(call, lambda reply: _read_edit(keys, job_id, "given another priority", reply))


def change_delay(keys: QueueKeys, job_id: str, delay_ms: int, now_ms: int) -> Operation[None]:
    """Change when a job that has not started is due."""
    call = glidemq.change_delay(
        keys, job_key=keys.job(job_id), job_id=job_id, delay_ms=delay_ms, now_ms=now_ms, group=GROUP
    )
    return Operation(call, lambda reply: _read_edit(keys, job_id, "given another delay", reply))


_REFUSALS = {
    "error:not_delayed": "is not delayed",
    "not_failed": "has not failed",
    "error:not_in_stream": "is about to start, or waits in a list",
    "error:not_in_scheduled": "has just become ready",
    "error:invalid_state": "has started, or waits for other jobs",
}


def _read_edit(keys: QueueKeys, job_id: str, done: str, reply: Reply) -> None:
    word = text(reply)
    if word in ("ok", "no_op"):
        return
    if word in ("error:not_found", "not_found"):
        raise JobNotFoundError(keys.queue, job_id)
    if why := _REFUSALS.get(word):
        raise StateError(
            f"Job {job_id!r} of queue {keys.queue!r} cannot be {done}, because it {why}; read its state first."
        )
    raise _build_unknown(keys, job_id, done, word)


def _build_unknown(keys: QueueKeys, job_id: str, done: str, word: str) -> ServerError:
    return ServerError(
        f"The server answered {word!r}, which protocol 93 does not define, so job {job_id!r} of queue {keys.queue!r} "
        f"may not have been {done}; check the server's function library with `oq library status`."
    )


def update_data(keys: QueueKeys, job_id: str, data_text: str) -> Operation[None]:
    """Replace the payload of an existing job. A running attempt keeps the payload it started with."""

    def read(reply: Reply) -> None:
        if integer(reply) == 0:
            raise JobNotFoundError(keys.queue, job_id)

    return Operation(oq1.update_data(job_key=keys.job(job_id), data=data_text), read)


def retry(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[None]:
    """Make one failed job ready with all its attempts."""
    call = oq1.retry_job(keys, job_key=keys.job(job_id), job_id=job_id, now_ms=now_ms)
    return Operation(call, lambda reply: _read_edit(keys, job_id, "retried", reply))


def retry_jobs(keys: QueueKeys, count: int, now_ms: int) -> Operation[int]:
    """Make failed jobs ready with all their attempts, oldest first; ``count`` 0 means all."""
    call = glidemq.retry_jobs(keys, count=count, now_ms=now_ms)
    return Operation(call, integer)


def clean(keys: QueueKeys, state: JobState, cutoff_ms: int, limit: int) -> Operation[list[str]]:
    """Remove jobs that finished at ``cutoff_ms`` or before; read their ids, oldest first."""
    finished = keys.completed if state is JobState.COMPLETED else keys.failed
    call = oq1.clean(keys, finished_key=finished, cutoff_ms=cutoff_ms, limit=limit)
    return Operation(call, texts)


def drain(keys: QueueKeys, limit: int, *, delayed: bool) -> Operation[int]:
    """Remove up to ``limit`` jobs that are ready, and with ``delayed`` those due later; read how many."""
    call = oq1.drain(keys, drain_delayed=delayed, group=GROUP, limit=limit)
    return Operation(call, integer)


MOST_EDGES = 100
"""Most dependencies that one call adds and removes."""


MOST_TRACKED = 1000
"""Most jobs of a queue that are tracked at a time."""


def track(keys: QueueKeys, job_id: str, now_ms: int, *, is_tracked: bool) -> Operation[None]:
    """Start or stop tracking a job. Retention keeps tracked jobs.

    Raises:
        JobNotFoundError: By the operation: it does not exist.
        StateError: By the operation: the queue tracks the maximum number of jobs.
    """
    call = oq1.track(keys, job_id=job_id, now_ms=now_ms, is_tracked=is_tracked, limit=MOST_TRACKED)
    why = {"too_many": f"can't be tracked, because {MOST_TRACKED:,} others are; untrack some of them first."}
    return Operation(call, lambda reply: _refuse(keys, job_id, text(reply), why))


def tracked_ids(keys: QueueKeys) -> Operation[list[str]]:
    """Read the ids of the tracked jobs, in the order in which they were tracked. Some may have been removed."""
    return Operation(Call("ZRANGE", (keys.tracked,), (0, -1)), texts)


def release(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[None]:
    """Take an active job from its worker and make it ready again.

    Raises:
        JobNotFoundError: By the operation: it does not exist.
        StateError: By the operation: it is not active, or its entry was not found.
    """
    why = {
        "not_active": "is not active; nothing needs to be released.",
        "not_in_stream": "is not among the 1,000 oldest entries, which are searched; wait until its lease ends.",
    }

    def read(reply: Reply) -> None:
        _refuse(keys, job_id, text(reply), why)

    return Operation(oq1.release_job(keys, job_id=job_id, now_ms=now_ms, group=GROUP), read)


def change_dependencies(
    keys: QueueKeys, job_id: str, now_ms: int, on: Sequence[str] = (), off: Sequence[str] = ()
) -> Operation[PendingNotifications]:
    """Change which jobs of its queue a job waits for; read the notifications still to send to its dependents.

    Raises:
        JobNotFoundError: By the operation: it, or a job that it should wait for, does not exist.
        StateError: By the operation: it does not wait for others or has run, or would wait for itself.
    """
    call = oq1.depends(
        keys,
        job_id=job_id,
        now_ms=now_ms,
        on=[oq1.DependsOn(other) for other in on],
        off=[oq1.DependsOff(other) for other in off],
    )

    def read(reply: Reply) -> PendingNotifications:
        word, other, news, job_ids = text(reply[0]), text(reply[1]), reply[2], reply[3]
        if word == "missing":
            raise JobNotFoundError(keys.queue, other)
        why = {
            "not_waiting": "does not wait for other jobs, or has run; only what a job still waits for can be changed.",
            "circle": f"can't wait for {other!r}, which waits for it.",
            "too_deep": f"can't wait for {other!r}: finding a cycle would take over 1,000 reads; pass another job.",
        }
        _refuse(keys, job_id, word, why)
        return read_notifications(news, job_ids)

    return Operation(call, read)


def remove_unneeded(keys: QueueKeys, job_id: str) -> Operation[bool]:
    """Remove a job unless others wait for it; read False if it does not exist.

    Raises:
        StateError: By the operation: others wait for it.
    """

    def read(reply: Reply) -> bool:
        if (answer := integer(reply)) < 0:
            raise StateError(
                f"Job {job_id!r} of queue {keys.queue!r} was not removed, because other jobs wait for it and would "
                "wait forever; cancel it, remove the dependency with `depends(off=...)`, or pass force=True."
            )
        return answer == 1

    return Operation(oq1.remove_unneeded(keys, job_id=job_id, group=GROUP), read)


def _refuse(keys: QueueKeys, job_id: str, word: str, why: dict[str, str]) -> None:
    if word == "ok":
        return
    if word == "not_found":
        raise JobNotFoundError(keys.queue, job_id)
    if word in why:
        raise StateError(f"Job {job_id!r} of queue {keys.queue!r} {why[word]}")
    raise ServerError(
        f"The server answered {word!r} about job {job_id!r} of queue {keys.queue!r}; run `oq library status`."
    )


def retag(
    keys: QueueKeys, job_id: str, now_ms: int, added: Sequence[str] = (), removed: Sequence[str] = ()
) -> Operation[None]:
    """Add tags to a job, and remove others.

    Raises:
        JobNotFoundError: By the operation: it does not exist.
        StateError: By the operation: it would have too many tags, and nothing was changed.
    """
    call = oq1.retag(
        job_key=keys.job(job_id),
        job_id=job_id,
        now_ms=now_ms,
        added=[oq1.TagAdded(tag) for tag in added],
        removed=[oq1.TagRemoved(tag) for tag in removed],
    )

    def read(reply: Reply) -> None:
        word = text(reply)
        if word == "not_found":
            raise JobNotFoundError(keys.queue, job_id)
        if word == "too_many":
            raise StateError(
                f"Job {job_id!r} of queue {keys.queue!r} would have more than {MAX_TAGS} tags, so none was added; "
                "remove some of its tags first."
            )

    return Operation(call, read)


def remove_finished(keys: QueueKeys, state: JobState, job_ids: Sequence[str]) -> Operation[list[str]]:
    """Remove those of the jobs that are still in this finished state; read their ids."""
    finished = keys.completed if state is JobState.COMPLETED else keys.failed
    return Operation(oq1.clean_jobs(keys, finished_key=finished, job_ids=job_ids), texts)


def retry_each(keys: QueueKeys, job_ids: Sequence[str], now_ms: int) -> Conversation[int]:
    """Make those of the jobs that are still failed ready with all their attempts; return how many there were."""
    retried = 0
    for some in chunks(job_ids, _MOST_RETRIED):
        replies = all_good((yield [retry(keys, job_id, now_ms).call for job_id in some]))
        retried += sum(text(reply) == "ok" for reply in replies)
    return retried
