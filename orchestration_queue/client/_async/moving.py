"""Moves of jobs to another queue."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration_queue.client._async.waking import wake
from orchestration_queue.client.checks import checked_text
from orchestration_queue.errors import UsageError
from orchestration_queue.options import Duration, JobOptions, milliseconds
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import moves
from orchestration_queue.protocol.operations.moves import MovedJobs
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["destination", "move_jobs"]


def destination(keys: QueueKeys, queue: str, delay: Duration | None) -> tuple[QueueKeys, int | None]:
    """Return the keys of the other queue, and the delay in milliseconds."""
    delay_ms = None if delay is None else milliseconds(JobOptions(delay=delay).delay)
    return QueueKeys(checked_text(queue, "queue"), keys.prefix), delay_ms


async def move_jobs(
    connection: AsyncConnection, keys: QueueKeys, job_ids: Sequence[str], queue: str, delay: Duration | None
) -> MovedJobs:
    """Move jobs to another queue, and wake its workers."""
    target, delay_ms = destination(keys, queue, delay)
    if target.base == keys.base:
        raise UsageError(f"The jobs are already in queue {queue!r}; name another queue.")
    done = await connection.follow(moves.move_all(keys, target, job_ids, now_ms(), delay_ms))
    if done.moved:
        await wake(connection, target)
    return done
