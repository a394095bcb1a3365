"""Wake an idle worker for jobs that become ready or due without a stream entry."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.worker_registry import wake_for_due, wake_workers
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["run_and_wake", "wake", "wake_all"]

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
