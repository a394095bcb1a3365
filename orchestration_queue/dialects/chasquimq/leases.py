"""Renew the leases of running jobs in a thread, so that a handler that blocks the event loop keeps its job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from orchestration_queue.dialects.chasquimq.keys import LIBRARY, ChasquiKeys
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.server import Connection, ServerUrl

__all__ = ["LeaseRenewer"]

log = logging.getLogger("orchestration_queue.chasquimq")

_BATCH = 500


class LeaseRenewer:
    """Renews leases three times per lease.

    Args:
        url: The server.
        keys: The queue's keys.
        group: The consumer group.
        consumer: The worker's name in the group.
        lease_s: The lease in seconds.
        on_lost: Called in the thread with the entries that another worker took over.
    """

    def __init__(
        self,
        url: ServerUrl,
        keys: ChasquiKeys,
        group: str,
        consumer: str,
        lease_s: float,
        on_lost: Callable[[list[str]], object],
    ) -> None:
        self._url = url
        self._keys = keys
        self._group = group
        self._consumer = consumer
        self._interval_s = lease_s / 3
        self._on_lost = on_lost
        self._held: dict[str, None] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"oq-chasqui-leases-{keys.queue}", daemon=True)
        self._thread.start()

    def hold(self, entry_id: str) -> None:
        """Renew the lease of an entry from now on."""
        with self._lock:
            self._held[entry_id] = None

    def drop(self, entry_id: str) -> None:
        """Stop renewing the lease of an entry."""
        with self._lock:
            self._held.pop(entry_id, None)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._held

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        connection: Connection | None = None
        try:
            while not self._ended.wait(self._interval_s):
                with self._lock:
                    held = list(self._held)
                try:
                    if held and connection is None:
                        connection = Connection.open(self._url, libraries=(LIBRARY,))
                    if held and connection is not None:
                        self._renew(connection, held)
                except OrchestrationQueueError as error:
                    log.warning("Queue %s: %d leases were not renewed: %s", self._keys.queue, len(held), error)
        finally:
            if connection is not None:
                connection.close()

    def _renew(self, connection: Connection, held: list[str]) -> None:
        for first in range(0, len(held), _BATCH):
            batch = held[first : first + _BATCH]
            call = functions.renew(
                stream_key=self._keys.stream, group=self._group, consumer=self._consumer, entry_ids=batch
            )
            renewed = connection.execute(call, repeatable=True)
            lost = [entry_id for entry_id, is_ours in zip(batch, renewed, strict=True) if not is_ours]
            # One that was settled meanwhile is no longer pending, and not lost.
            if lost := [entry_id for entry_id in lost if entry_id in self._held]:
                self._on_lost(lost)
