"""Wake idle workers for jobs that become due without a stream entry."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.worker_registry import wake_workers
from orchestration_queue.server import AsyncConnection

__all__ = ["run_and_wake", "wake"]

T = TypeVar("T")


async def run_and_wake(connection: AsyncConnection, keys: QueueKeys, operation: Operation[T]) -> T:
    """Run an operation, then signal idle workers of the queue. A refused operation sends no signal.

    A lost or refused signal is ignored: workers find the job within their promotion interval.
    """
    done = await connection.run(operation)
    await wake(connection, keys)
    return done


async def wake(connection: AsyncConnection, keys: QueueKeys) -> None:
    """Signal idle workers of a queue that jobs are due, as :func:`run_and_wake` does after its operation."""
    with suppress(TransportError):
        await connection.pipeline([wake_workers(keys)])
