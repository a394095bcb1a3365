"""Changes that make a job due which no stream entry announces: an idle worker is woken for it."""

from __future__ import annotations

from typing import TypeVar

from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.conversation import all_good
from orchestration_queue.protocol.operations.worker_registry import wake_workers
from orchestration_queue.server import AsyncConnection

__all__ = ["run_and_wake"]

T = TypeVar("T")


async def run_and_wake(connection: AsyncConnection, keys: QueueKeys, operation: Operation[T]) -> T:
    """Carry out an operation and signal idle workers of the queue, in one exchange. A refused signal is ignored."""
    replies = await connection.pipeline([operation.call, wake_workers(keys)])
    (reply,) = all_good(replies[:1])
    return operation.read(reply)
