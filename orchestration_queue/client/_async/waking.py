"""Wake an idle worker for jobs that become ready or due without a stream entry, such as moved ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from orchestration_queue.client.checks import check_text
from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.options import Duration, JobOptions, milliseconds
from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import moves
from orchestration_queue.protocol.operations.moves import MovedJobs
from orchestration_queue.protocol.operations.worker_signals import wake_for_due, wake_workers
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["destination", "move_jobs", "run_and_wake", "wake", "wake_all"]

T = TypeVar("T")


async def run_and_wake(connection: AsyncConnection, keys: QueueKeys, operation: Operation[T]) -> T:
    """Run an operation, then signal an idle worker of the queue. A refused operation sends no signal.

    A lost or refused signal is ignored: workers find the job within their promotion interval.
    """
    done = await connection.run(operation)
    await wake(connection, keys)
    return done


async def wake(connection: AsyncConnection, keys: QueueKeys) -> None:
    """Signal an idle worker of a queue that jobs became due, as :func:`run_and_wake` does after its operation."""
    with suppress(TransportError):
        await connection.pipeline([wake_for_due(keys, now_ms())])


async def wake_all(connection: AsyncConnection, keys: QueueKeys) -> None:
    """Signal all workers of a queue what concerns each of them: it was resumed, or has other settings or schedules."""
    with suppress(TransportError):
        await connection.pipeline([wake_workers(keys)])


def destination(keys: QueueKeys, queue: str, delay: Duration | None) -> tuple[QueueKeys, int | None]:
    """Return the keys of the other queue, and the delay in milliseconds."""
    delay_ms = None if delay is None else milliseconds(JobOptions(delay=delay).delay)
    return QueueKeys(check_text(queue, "queue"), keys.prefix), delay_ms


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
