"""Renew the locks of running jobs in a thread, so that a handler that blocks the event loop keeps its job."""

from __future__ import annotations

import threading
from collections.abc import Callable

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, StateError
from orchestration_queue.server import ServerUrl
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.qless._sync.client import QlessClient
from orchestration_queue.wires.qless.records import QlessJob

__all__ = ["QlessLeaseRenewer"]

log = get_logger("orchestration_queue.qless")

_SOONEST_S, _LATEST_S = 0.05, 20.0


class QlessLeaseRenewer:
    """Sends heartbeats three times per lock, and immediately when a lock is reported lost.

    Args:
        url: The server.
        worker: The worker's name.
        on_lost: Called in the thread with a job that is no longer the worker's.
    """

    def __init__(self, url: ServerUrl, worker: str, on_lost: Callable[[QlessJob], object]) -> None:
        self._client = QlessClient(url=url, worker=worker)
        self._on_lost = on_lost
        self._held: dict[str, QlessJob] = {}
        self._next_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"oq-qless-leases-{worker}", daemon=True)
        self._thread.start()

    def hold(self, job: QlessJob) -> None:
        """Renew the lock of a job from now on."""
        expires = job.expires.timestamp() if job.expires else 0.0
        with self._lock:
            self._held[job.jid] = job
            self._next_at[job.jid] = _next(expires)
        self._wake.set()

    def drop(self, jid: str) -> None:
        """Stop renewing the lock of a job."""
        with self._lock:
            self._held.pop(jid, None)
            self._next_at.pop(jid, None)

    def check(self, jid: str | None = None) -> None:
        """Check immediately whether this job's lock, or every lock, is still held."""
        with self._lock:
            self._next_at |= {held: 0.0 for held in self._held if jid in (held, None)}
        self._wake.set()

    def close(self) -> None:
        """End the thread."""
        self._ended = True
        self._wake.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._ended:
            with self._lock:
                soonest = min(self._next_at.values(), default=_now() + _LATEST_S)
            self._wake.wait(min(max(soonest - _now(), _SOONEST_S), _LATEST_S) if soonest else 0)
            self._wake.clear()
            with self._lock:
                due = [self._held[jid] for jid, at in self._next_at.items() if at <= _now()]
            for job in due:
                if not self._ended:
                    self._renew(job)

    def _renew(self, job: QlessJob) -> None:
        try:
            expires: float = self._client.heartbeat(job)
        except StateError as error:
            with self._lock:
                is_held = self._held.get(job.jid) is job
            # One that was settled meanwhile is not lost.
            if is_held:
                self.drop(job.jid)
                log.warning("%s", error)
                self._on_lost(job)
            return
        except OrchestrationQueueError as error:
            log.warning("The lock of job %s was not renewed: %s", job.jid, error)
            expires = _now()
        with self._lock:
            if self._held.get(job.jid) is job:
                self._next_at[job.jid] = _next(expires)


def _now() -> float:
    return now_ms() / 1000


def _next(expires: float) -> float:
    """Return when to renew a lock: after a third of the time that it has left."""
    return _now() + min(max((expires - _now()) / 3, _SOONEST_S), _LATEST_S)
