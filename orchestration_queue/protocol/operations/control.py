"""Control of a queue and its jobs: pause, resume, cancel, promote, delay, signal, clean."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from orchestration_queue.errors import JobNotFoundError, ServerError, StateError, UsageError
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, optional_text, text, texts
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.record import when
from orchestration_queue.protocol.signals import Signal, read_signals
from orchestration_queue.states import JobState

__all__ = [
    "Cancellation",
    "SuspendInfo",
    "cancel",
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
    "signal",
    "suspend_info",
    "update_data",
]


class Cancellation(StrEnum):
    """What cancelling a job did. The values are the wire's."""

    CANCELLED = "revoked"
    """It had not started, and never will."""
    FLAGGED = "flagged"
    """It is running, waits for other jobs, or is finished: it is marked, and refused should it be about to start."""


def pause(keys: QueueKeys) -> Operation[None]:
    """Ask the workers to take no more jobs."""
    return Operation(glidemq.pause(keys), _nothing)


def resume(keys: QueueKeys) -> Operation[None]:
    """Let the workers take jobs again."""
    return Operation(glidemq.resume(keys), _nothing)


def _nothing(_reply: Reply) -> None:
    return None


def remove(keys: QueueKeys, job_id: str, group: str = GROUP) -> Operation[bool]:
    """Remove a job in any state; False when it does not exist. An empty ``group`` leaves its entry on the stream."""
    call = oq1.remove_job(keys, job_id=job_id, group=group)
    return Operation(call, lambda reply: integer(reply) == 1)


def cancel(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[Cancellation]:
    """Cancel a job, and decide for the jobs that depend on it if it will never run."""

    def read(reply: Reply) -> Cancellation:
        word = text(reply)
        if word == "not_found":
            raise JobNotFoundError(keys.queue, job_id)
        try:
            return Cancellation(word)
        except ValueError:
            raise _unknown(keys, job_id, "cancelled", word) from None

    call = oq1.revoke(keys, job_id=job_id, now_ms=now_ms, group=GROUP)
    return Operation(call, read)


def promote_job(keys: QueueKeys, job_id: str) -> Operation[None]:
    """Make a delayed job ready now."""
    call = glidemq.promote_job(keys, job_key=keys.job(job_id), job_id=job_id)
    return Operation(call, lambda reply: _read_edit(keys, job_id, "promoted", reply))


def change_priority(keys: QueueKeys, job_id: str, priority: int) -> Operation[None]:
    """Give a job that has not started another priority."""
    call = glidemq.change_priority(keys, job_key=keys.job(job_id), job_id=job_id, priority=priority, group=GROUP)
    return Operation(call, lambda reply: _read_edit(keys, job_id, "given another priority", reply))


def change_delay(keys: QueueKeys, job_id: str, delay_ms: int, now_ms: int) -> Operation[None]:
    """Make a job that has not started ready at another time."""
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
    call = oq1.retry_job(keys, job_key=keys.job(job_id), job_id=job_id, now_ms=now_ms)
    return Operation(call, lambda reply: _read_edit(keys, job_id, "retried", reply))


def retry_jobs(keys: QueueKeys, count: int, now_ms: int) -> Operation[int]:
    """Give failed jobs all their attempts again, oldest first; ``count`` 0 means all."""
    call = glidemq.retry_jobs(keys, count=count, now_ms=now_ms)
    return Operation(call, integer)


def clean(keys: QueueKeys, state: JobState, cutoff_ms: int, limit: int) -> Operation[list[str]]:
    """Remove jobs that finished at ``cutoff_ms`` or before; returns their ids, oldest first."""
    finished = keys.completed if state is JobState.COMPLETED else keys.failed
    call = oq1.clean(keys, finished_key=finished, cutoff_ms=cutoff_ms, limit=limit)
    return Operation(call, texts)


def drain(keys: QueueKeys, limit: int, *, delayed: bool) -> Operation[int]:
    """Remove up to ``limit`` jobs that are ready, and with ``delayed`` those that are due later; returns how many."""
    call = oq1.drain(keys, drain_delayed=delayed, group=GROUP, limit=limit)
    return Operation(call, integer)


@dataclass(frozen=True, slots=True)
class SuspendInfo:
    """Why and since when a job is suspended.

    Attributes:
        reason: What its handler gave as the reason; None without one.
        suspended_at: Since when.
        timeout: How long it waits for a signal before it fails; None waits forever.
        signals: Those that ended its earlier suspensions.
    """

    reason: str | None
    suspended_at: datetime | None
    timeout: timedelta | None
    signals: tuple[Signal, ...]


def signal(keys: QueueKeys, job_id: str, name: str, data: Any, now_ms: int) -> Operation[bool]:
    """Give a suspended job a signal and make it ready; False when it is not suspended (or not there).

    Args:
        keys: The job's queue.
        job_id: The job.
        name: What kind of signal it is.
        data: Its payload; None for none.
        now_ms: Epoch milliseconds.

    Raises:
        UsageError: The name is no text, or empty.
        PayloadError: The data is not JSON, or larger than 1 MiB.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"Signal name must be a non-empty string, got {name!r}; pass a word such as 'approved'.")
    call = glidemq.signal(
        keys,
        job_key=keys.job(job_id),
        signals_key=keys.signals(job_id),
        job_id=job_id,
        signal_name=name,
        signal_data="" if data is None else codec.encode(data, f"The data of signal {name!r}"),
        now_ms=now_ms,
    )
    return Operation(call, lambda reply: text(reply) == "ok")


_FIELDS = ("state", "suspendReason", "suspendedAt", "suspendTimeout", "signals")


def suspend_info(keys: QueueKeys, job_id: str) -> Operation[SuspendInfo | None]:
    """Why and since when a job is suspended; None when it is not."""

    def read(reply: Reply) -> SuspendInfo | None:
        state, reason, since_ms, timeout_ms, signals = map(optional_text, reply)
        if state != JobState.SUSPENDED:
            return None
        timeout = timedelta(milliseconds=integer(timeout_ms)) if timeout_ms else None
        return SuspendInfo(reason or None, when(since_ms), timeout, read_signals(signals))

    return Operation(Call("HMGET", (keys.job(job_id),), _FIELDS), read)
