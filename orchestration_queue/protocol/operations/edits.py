"""Edits of one job: release it, change what it waits for, remove it unless it is needed."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration_queue.errors import JobNotFoundError, ServerError, StateError
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, text, texts
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations.notifications import PendingNotifications, read_notifications

__all__ = ["MOST_EDGES", "MOST_TRACKED", "change_dependencies", "release", "remove_unneeded", "track", "tracked_ids"]

MOST_EDGES = 100
"""Most dependencies that one call adds and removes."""


MOST_TRACKED = 1000
"""Most jobs of a queue that are tracked at a time."""


def track(keys: QueueKeys, job_id: str, now_ms: int, *, is_tracked: bool) -> Operation[None]:
    """Track a job, which retention then keeps, or track it no more.

    Raises:
        JobNotFoundError: By the operation: it does not exist.
        StateError: By the operation: as many jobs are tracked as may be.
    """
    call = oq1.track(keys, job_id=job_id, now_ms=now_ms, is_tracked=is_tracked, limit=MOST_TRACKED)
    why = {"too_many": f"cannot be tracked beside {MOST_TRACKED:,} others; untrack some of them first."}
    return Operation(call, lambda reply: _refuse(keys, job_id, text(reply), why))


def tracked_ids(keys: QueueKeys) -> Operation[list[str]]:
    """Ids of the tracked jobs, those tracked first before the others; some of them may have been removed."""
    return Operation(Call("ZRANGE", (keys.tracked,), (0, -1)), texts)


def release(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[None]:
    """Take an active job from its worker and make it ready again.

    Raises:
        JobNotFoundError: By the operation: it does not exist.
        StateError: By the operation: it is not active, or its entry was not found.
    """
    why = {
        "not_active": "is not active; nothing needs to be released.",
        "not_in_stream": "is not among the 5,000 oldest active jobs, which are searched; wait until its lease ends.",
    }

    def read(reply: Reply) -> None:
        _refuse(keys, job_id, text(reply), why)

    return Operation(oq1.release_job(keys, job_id=job_id, now_ms=now_ms, group=GROUP), read)


def change_dependencies(
    keys: QueueKeys, job_id: str, now_ms: int, on: Sequence[str] = (), off: Sequence[str] = ()
) -> Operation[PendingNotifications]:
    """Change which jobs of its queue a job waits for; returns what remains to be told to jobs that wait for it.

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
            "circle": f"cannot wait for {other!r}, which waits for it in turn.",
            "too_deep": f"cannot wait for {other!r}: more than 1,000 jobs would have to be read to find a circle.",
        }
        _refuse(keys, job_id, word, why)
        return read_notifications(news, job_ids)

    return Operation(call, read)


def remove_unneeded(keys: QueueKeys, job_id: str) -> Operation[bool]:
    """Remove a job unless others wait for it; False when it does not exist.

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
