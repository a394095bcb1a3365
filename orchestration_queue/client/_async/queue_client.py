"""What all clients of one queue have in common."""

from __future__ import annotations

from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection

__all__ = ["AsyncQueueClient"]


class AsyncQueueClient(AsyncClient):
    """A client of one queue. Connects when first needed.

    Args:
        name: The queue's name: up to 256 characters, without ``:`` ``{`` ``}``.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        super().__init__(url, connection)
        self.name = name
        self.keys = QueueKeys(name, prefix)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _job(self, record: JobRecord) -> AsyncJob:
        return AsyncJob(self._connection, self.keys, record.id, record)
