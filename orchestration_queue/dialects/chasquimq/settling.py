"""The calls and events that record a job's outcome."""

from __future__ import annotations

from typing import Any

from orchestration_queue.dialects.chasquimq.backoff import backoff_ms
from orchestration_queue.dialects.chasquimq.delivery import Delivery, Rejection
from orchestration_queue.dialects.chasquimq.envelope import join_member, pack_envelope
from orchestration_queue.dialects.chasquimq.keys import ChasquiKeys
from orchestration_queue.dialects.chasquimq.observer import ChasquiObserver
from orchestration_queue.dialects.chasquimq.options import ChasquiWorkerOptions
from orchestration_queue.dialects.chasquimq.outbox import Event, Outbox, Settlement, build_event
from orchestration_queue.dialects.chasquimq.packing import pack
from orchestration_queue.errors import PayloadError, UnrecoverableError
from orchestration_queue.options import seconds
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.protocol.outcome import message_of

__all__ = ["Settler"]

_MAX_REASON = 4096
"""The longest error text in events and dead letters."""


class Settler:
    """Records the outcomes of a worker's jobs.

    Args:
        keys: The queue's keys.
        options: The worker's options.
        outbox: Sends the records.
        observer: Called for each.
    """

    def __init__(
        self, keys: ChasquiKeys, options: ChasquiWorkerOptions, outbox: Outbox, observer: ChasquiObserver
    ) -> None:
        self._observer = observer
        self._keys = keys
        self._options = options
        self._outbox = outbox

    def start(self, delivery: Delivery) -> None:
        """Report that a handler starts."""
        self._report(delivery, "active")

    def complete(self, delivery: Delivery, result: Any, duration_us: int) -> None:
        """Record a success; a result that can't be packed makes it a failure."""
        if not self._options.store_results or result is None:
            self._observer.completed(delivery.name, duration_us / 1e6)
            self._report(delivery, "completed", "duration_us", str(duration_us))
            self._outbox.settle(Settlement(delivery.entry_id))
            return
        try:
            value = pack(result, "The job's result")
        except PayloadError as error:
            self.fail(delivery, UnrecoverableError(str(error)), duration_us, 0.0)
            return
        self._observer.completed(delivery.name, duration_us / 1e6)
        ttl_ms = int(seconds(self._options.result_ttl) * 1000)
        call = functions.finish(
            stream_key=self._keys.stream,
            result_key=self._keys.result(delivery.job.id),
            group=self._options.group,
            entry_id=delivery.entry_id,
            ttl_s=max(1, -(-ttl_ms // 1000)),
            value=value,
        )
        # Reported once the result is stored, for callers that wait for it.
        extras = ("attempt", str(delivery.attempt), "duration_us", str(duration_us))
        event = self._event("completed", delivery.job.id, delivery.name, *extras)
        self._outbox.settle(Settlement(delivery.entry_id, call, event))

    def fail(self, delivery: Delivery, error: BaseException, duration_us: int, chance: float) -> None:
        """Record a failed attempt: the job waits for its next one, or becomes a dead letter."""
        reason = message_of(error)[:_MAX_REASON]
        self._observer.failed(delivery.name, duration_us / 1e6)
        self._report(delivery, "failed", "reason", reason, "duration_us", str(duration_us))
        if isinstance(error, UnrecoverableError):
            self._outbox.settle(self._bury(delivery, "unrecoverable", reason))
        elif delivery.attempt >= delivery.max_attempts:
            self._outbox.settle(self._bury(delivery, "retries_exhausted", reason))
        else:
            self._outbox.settle(self._retry(delivery, chance))

    def reject(self, rejection: Rejection) -> None:
        """Move an entry that can't run to the dead-letter queue."""
        self._observer.buried(rejection.name, rejection.reason)
        extras = ("attempt", str(rejection.attempt), "reason", rejection.reason)
        event = self._event("dlq", "", rejection.name, *extras)
        call = functions.bury(
            stream_key=self._keys.stream,
            dead_letters_key=self._keys.dead_letters,
            group=self._options.group,
            entry_id=rejection.entry_id,
            max_dead=self._options.max_dead_letters,
            envelope=rejection.packed,
            job_name=rejection.name,
            reason=rejection.reason,
            detail=rejection.detail,
        )
        self._outbox.settle(Settlement(rejection.entry_id, call, event))

    def _retry(self, delivery: Delivery, chance: float) -> Settlement:
        envelope = delivery.envelope.with_attempt(delivery.attempt)
        spec = None if envelope.retry is None else envelope.retry.backoff
        pause_ms = backoff_ms(spec, delivery.attempt, chance)
        self._observer.retried(delivery.name, pause_ms / 1000)
        call = functions.retry(
            stream_key=self._keys.stream,
            delayed_key=self._keys.delayed,
            group=self._options.group,
            entry_id=delivery.entry_id,
            backoff_ms=pause_ms,
            member=join_member(delivery.name, pack_envelope(envelope)),
        )
        extras = ("attempt", str(delivery.attempt + 1), "backoff_ms", str(pause_ms))
        event = self._event("retry-scheduled", delivery.job.id, delivery.name, *extras)
        return Settlement(delivery.entry_id, call, event)

    def _bury(self, delivery: Delivery, reason: str, detail: str) -> Settlement:
        call = functions.bury(
            stream_key=self._keys.stream,
            dead_letters_key=self._keys.dead_letters,
            group=self._options.group,
            entry_id=delivery.entry_id,
            max_dead=self._options.max_dead_letters,
            envelope=pack_envelope(delivery.envelope.with_attempt(delivery.job.attempt)),
            job_name=delivery.name,
            reason=reason,
            detail=detail,
        )
        self._observer.buried(delivery.name, reason)
        extras = ("attempt", str(delivery.attempt), "reason", reason)
        return Settlement(delivery.entry_id, call, self._event("dlq", delivery.job.id, delivery.name, *extras))

    def _report(self, delivery: Delivery, kind: str, *extras: str) -> None:
        if event := self._event(kind, delivery.job.id, delivery.name, "attempt", str(delivery.attempt), *extras):
            self._outbox.report(event)

    def _event(self, kind: str, job_id: str, name: str, *extras: str) -> Event | None:
        return build_event(kind, job_id, name, *extras) if self._options.emit_events else None
