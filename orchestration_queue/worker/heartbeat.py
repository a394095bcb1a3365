"""Renews leases from a separate thread, so that a blocked event loop loses none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.server import Connection
from orchestration_queue.worker.observability import list_ids

__all__ = ["SHUTDOWN_TIMEOUT_S", "Heartbeat", "Renew"]

Renew: TypeAlias = Callable[[Connection, Sequence[Lease], int], list[Renewal]]
"""Renews leases through a connection, at a time in epoch ms; returns the result for each."""

log = get_logger("orchestration_queue.worker")

SHUTDOWN_TIMEOUT_S = 2.0
"""How long shutdown waits for an unresponsive server."""
_RETRY_S = 5.0
"""How long to wait after a failed renewal, at most: it may be about a job that was released, and leases may be long."""


class Heartbeat:
    """Renews the leases of running jobs, each after half its duration. Jobs that end sooner cost nothing.

    Args:
        renew: Renews leases.
        now_ms: Returns the time, in epoch milliseconds.
        connection: Connection that the thread uses, and others may use, too.
        lease_s: The usual lease in seconds; shorter ones are handled too.
        on_end: Called, in this thread, with a lease that was lost, or whose job was revoked.

    Attributes:
        renewed: How many leases it has renewed so far.
    """

    def __init__(
        self,
        renew: Renew,
        now_ms: Callable[[], int],
        connection: Connection,
        lease_s: float,
        on_end: Callable[[Lease, Renewal], object],
    ) -> None:
        self.renewed = 0
        self._on_end = on_end
        self._renew = renew
        self._now_ms = now_ms
        self._connection = connection
        # Checked eight times per lease, a renewal is sent at 5/8 of it at the latest, which leaves 3/8 for an outage.
        self._tick_s = lease_s / 8
        self._kept: dict[Lease, _RenewedLease] = {}
        self._wake = threading.Event()
        self._is_closed = False
        # A daemon, because a server that never replies must not keep the process from exiting.
        self._thread = threading.Thread(target=self._run, name="oq-heartbeat", daemon=True)
        self._thread.start()

    def keep(self, lease: Lease, lease_s: float, since: float) -> None:
        """Renew this job's lease from now on; it was requested at this time of :func:`time.monotonic`."""
        self._kept[lease] = _RenewedLease(lease, lease_s / 2, since + lease_s / 2)
        if lease_s / 8 < self._tick_s:
            self._tick_s = lease_s / 8
            self._wake.set()

    def set_usual_lease(self, lease_s: float) -> None:
        """Change the usual lease, in seconds. Running jobs are renewed as often as a shorter one requires."""
        self._tick_s = min(self._tick_s, lease_s / 8)
        for kept in list(self._kept.values()):
            if lease_s / 2 < kept.interval_s:
                kept.next_at += lease_s / 2 - kept.interval_s
                kept.interval_s = lease_s / 2
        self._wake.set()

    def check(self, job_id: str) -> None:
        """Renew the lease of a job now, to find out whether it is still held."""
        for kept in list(self._kept.values()):
            if kept.lease.job_id == job_id:
                kept.next_at = time.monotonic()
                self._wake.set()

    def drop(self, lease: Lease) -> None:
        """Stop renewing this lease."""
        self._kept.pop(lease, None)

    @property
    def is_behind(self) -> bool:
        """Whether a renewal is overdue by half of the time that was left when it was due."""
        now = time.monotonic()
        return any(now > kept.next_at + kept.interval_s / 2 for kept in list(self._kept.values()))

    def close(self) -> None:
        """Stop, and wait for the thread to end, unless the server doesn't answer."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(SHUTDOWN_TIMEOUT_S)

    def _run(self) -> None:
        has_failed = False
        while not self._is_closed:
            slept = time.monotonic()
            self._wake.wait(min(self._tick_s, _RETRY_S) if has_failed else self._tick_s)
            self._wake.clear()
            asked = time.monotonic()
            # A copy, here and below, since the event loop adds and drops leases while this thread iterates.
            if late := [kept for kept in list(self._kept.values()) if kept.has_expired(asked)]:
                self._report_late(late, asked - slept)
            if not (due := self._due()):
                continue
            planned = [kept.next_at for kept in due]
            try:
                answers = self._renew(self._connection, [kept.lease for kept in due], self._now_ms())
            except OrchestrationQueueError as error:
                log.warning("Could not renew the leases of %d jobs, trying again soon: %s", len(due), error)
                has_failed = True
                continue
            has_failed = False
            for kept, answer, planned_at in zip(due, answers, planned, strict=True):
                # From the request on: the server may have renewed long before its reply arrived.
                if kept.next_at == planned_at:  # else a check was requested meanwhile
                    kept.next_at = asked + kept.interval_s  # immediately, if the reply took longer than that
                if answer is Renewal.RENEWED:
                    self.renewed += 1
                else:
                    self.drop(kept.lease)
                    self._on_end(kept.lease, answer)

    def _report_late(self, late: Sequence[_RenewedLease], away_s: float) -> None:
        """Log why leases have expired, unless the server did not answer, which was logged."""
        if away_s > min(kept.interval_s for kept in late):
            log.warning(
                "No renewal for %.1f s, in which the leases of %d jobs expired: this process ran no other thread. "
                "A handler held Python's GIL, as C code like a regular expression may, or the process was suspended. "
                "Other workers may run the jobs again; make such a handler sandboxed, or raise `lease`: %s",
                away_s,
                len(late),
                list_ids([f"{kept.lease.job_id} ({kept.lease.record.name})" for kept in late]),
            )

    def _due(self) -> list[_RenewedLease]:
        now = time.monotonic()
        return [kept for kept in list(self._kept.values()) if kept.next_at <= now]


@dataclass(slots=True)
class _RenewedLease:
    """A lease, and when to renew it next."""

    lease: Lease
    interval_s: float
    next_at: float

    def has_expired(self, now: float) -> bool:
        """Whether it has expired by the time of :func:`time.monotonic`, unless a renewal's reply was lost."""
        return now > self.next_at + self.interval_s
