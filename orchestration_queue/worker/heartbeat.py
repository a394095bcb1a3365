"""Keeps leases alive from a thread of its own, so that a busy event loop loses none."""

from __future__ import annotations

import logging
import threading
import time

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import working
from orchestration_queue.server import Connection, ServerUrl
from orchestration_queue.worker.line import now_ms

__all__ = ["Heartbeat"]

log = logging.getLogger("orchestration_queue.worker")


class Heartbeat:
    """Renews the leases of running jobs, each after half its time. A job that ends sooner costs nothing.

    Args:
        keys: The queue's keys.
        url: Where the server is; the thread has a connection of its own.
        lease_s: The usual lease in seconds; shorter ones are met too.
    """

    def __init__(self, keys: QueueKeys, url: ServerUrl, lease_s: float) -> None:
        self._keys = keys
        self._url = url
        self._tick_s = lease_s / 8
        self._jobs: dict[str, tuple[float, float]] = {}  # job id -> (seconds between renewals, time of the next)
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="oq-heartbeat", daemon=True)
        self._thread.start()

    def keep(self, job_id: str, lease_s: float) -> None:
        """Renew this job's lease from now on."""
        self._jobs[job_id] = (lease_s / 2, time.monotonic() + lease_s / 2)
        if lease_s / 8 < self._tick_s:
            self._tick_s = lease_s / 8
            self._wake.set()

    def drop(self, job_id: str) -> None:
        """Stop renewing this job's lease."""
        self._jobs.pop(job_id, None)

    def close(self) -> None:
        """Stop, and wait for the thread to end."""
        self._over = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        connection: Connection | None = None
        while not self._over:
            self._wake.wait(self._tick_s)
            self._wake.clear()
            if not (due := self._due()):
                continue
            try:
                connection = connection or Connection.open(self._url)
                connection.pipeline([working.renew(self._keys, job_id, now_ms()) for job_id in due])
            except OrchestrationQueueError as error:
                log.warning("Could not renew the leases of %d jobs, trying again soon: %s", len(due), error)
                continue
            for job_id in due:
                self._renewed(job_id)
        if connection is not None:
            connection.close()

    def _due(self) -> list[str]:
        now = time.monotonic()
        return [job_id for job_id, (_, at) in list(self._jobs.items()) if at <= now]

    def _renewed(self, job_id: str) -> None:
        if kept := self._jobs.get(job_id):
            self._jobs[job_id] = (kept[0], time.monotonic() + kept[0])
