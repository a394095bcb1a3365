"""Steering a queue and its jobs: pause, resume, withdraw, hurry, postpone, tidy up."""

from __future__ import annotations

from enum import StrEnum

from orchestration_queue.errors import JobNotFoundError, ServerError, StateError
from orchestration_queue.protocol.call import Operation, Reply, integer, text, texts
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.states import JobState

__all__ = [
    "Revocation",
    "change_delay",
    "change_priority",
    "clean",
    "drain",
    "pause",
    "promote_job",
    "remove",
    "resume",
    "retry",
    "retry_jobs",
    "revoke",
    "update_data",
]


class Revocation(StrEnum):
    """What revoking a job did. The values are the wire's."""

    REVOKED = "revoked"
    """It had not started, and never will."""
    FLAGGED = "flagged"
    """It is running, waits for other jobs, or is finished: it is marked, and refused should it be about to start."""


def pause(keys: QueueKeys) -> Operation[None]:
    """Ask the workers to take no more jobs."""
    return Operation(glidemq.pause(meta_key=keys.meta, events_key=keys.events), _nothing)


def resume(keys: QueueKeys) -> Operation[None]:
    """Let the workers take jobs again."""
    return Operation(glidemq.resume(meta_key=keys.meta, events_key=keys.events), _nothing)


def _nothing(_reply: Reply) -> None:
    return None


def remove(keys: QueueKeys, job_id: str) -> Operation[bool]:
    """Remove a job, wherever it is; False when there is none."""
    call = glidemq.remove_job(
        job_key=keys.job(job_id),
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        completed_key=keys.completed,
        failed_key=keys.failed,
        events_key=keys.events,
        log_key=keys.log(job_id),
        job_id=job_id,
    )
    return Operation(call, lambda reply: integer(reply) == 1)


def revoke(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[Revocation]:
    """Withdraw a job; those that wait for it are decided about, if it never will run."""

    def read(reply: Reply) -> Revocation:
        word = text(reply)
        if word == "not_found":
            raise JobNotFoundError(keys.queue, job_id)
        try:
            return Revocation(word)
        except ValueError:
            raise _unknown(keys, job_id, "revoked", word) from None

    call = oq1.revoke(
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        failed_key=keys.failed,
        events_key=keys.events,
        metrics_failed_key=keys.metrics_failed,
        ratelimited_key=keys.ratelimited,
        job_id=job_id,
        now_ms=now_ms,
        group=GROUP,
    )
    return Operation(call, read)


def promote_job(keys: QueueKeys, job_id: str) -> Operation[None]:
    """Make a delayed job ready now."""
    call = glidemq.promote_job(
        job_key=keys.job(job_id),
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        job_id=job_id,
    )
    return Operation(call, lambda reply: _read_edit(keys, job_id, "promoted", reply))


def change_priority(keys: QueueKeys, job_id: str, priority: int) -> Operation[None]:
    """Give a job that has not started another priority."""
    call = glidemq.change_priority(
        job_key=keys.job(job_id),
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        job_id=job_id,
        priority=priority,
        group=GROUP,
    )
    return Operation(call, lambda reply: _read_edit(keys, job_id, "given another priority", reply))


def change_delay(keys: QueueKeys, job_id: str, delay_ms: int, now_ms: int) -> Operation[None]:
    """Make a job that has not started ready at another time."""
    call = glidemq.change_delay(
        job_key=keys.job(job_id),
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        job_id=job_id,
        delay_ms=delay_ms,
        now_ms=now_ms,
        group=GROUP,
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
            f"Job {job_id!r} of queue {keys.queue!r} cannot be {done}, because it {why}; look at its state first."
        )
    raise _unknown(keys, job_id, done, word)


def _unknown(keys: QueueKeys, job_id: str, done: str, word: str) -> ServerError:
    return ServerError(
        f"The server answered {word!r} when job {job_id!r} of queue {keys.queue!r} was to be {done}, which "
        "protocol 93 does not know; check the server's function library with `oq library status`."
    )


def update_data(keys: QueueKeys, job_id: str, data_text: str) -> Operation[None]:
    """Replace the payload of a job that is there; an attempt that is running keeps what it was given."""

    def read(reply: Reply) -> None:
        if integer(reply) == 0:
            raise JobNotFoundError(keys.queue, job_id)

    return Operation(oq1.update_data(job_key=keys.job(job_id), data=data_text), read)


def retry(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[None]:
    """Give one failed job all its attempts again, due at once."""
    call = oq1.retry_job(
        job_key=keys.job(job_id), failed_key=keys.failed, scheduled_key=keys.scheduled, job_id=job_id, now_ms=now_ms
    )
    return Operation(call, lambda reply: _read_edit(keys, job_id, "retried", reply))


def retry_jobs(keys: QueueKeys, count: int, now_ms: int) -> Operation[int]:
    """Give failed jobs all their attempts again, oldest first; ``count`` 0 means all."""
    call = glidemq.retry_jobs(
        failed_key=keys.failed,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        id_key=keys.id,
        count=count,
        now_ms=now_ms,
    )
    return Operation(call, integer)


def clean(keys: QueueKeys, state: JobState, cutoff_ms: int, limit: int) -> Operation[list[str]]:
    """Remove jobs that finished at ``cutoff_ms`` or before; returns their ids, oldest first."""
    finished = keys.completed if state is JobState.COMPLETED else keys.failed
    call = glidemq.clean(
        finished_key=finished, events_key=keys.events, id_key=keys.id, cutoff_ms=cutoff_ms, limit=limit
    )
    return Operation(call, texts)


def drain(keys: QueueKeys, limit: int, *, delayed: bool) -> Operation[int]:
    """Remove up to ``limit`` jobs that are ready, and with ``delayed`` those that are due later; returns how many."""
    call = oq1.drain(
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        lifo_key=keys.lifo,
        priority_key=keys.priority,
        drain_delayed=delayed,
        group=GROUP,
        limit=limit,
    )
    return Operation(call, integer)
