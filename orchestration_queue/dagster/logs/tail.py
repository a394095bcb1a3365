"""Logs that the UI follows while they are written."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from orchestration_queue.dagster._compat import CapturedLogSubscription
from orchestration_queue.dagster.logs.store import LogKey
from orchestration_queue.errors import OrchestrationQueueError

__all__ = ["LiveTail", "Subscription"]

_INTERVAL_S = 0.5


class _Knows(Protocol):
    """What a subscription's log manager can tell."""

    def is_capture_complete(self, log_key: LogKey) -> bool: ...


class Subscription(CapturedLogSubscription):
    """A subscriber, served by the subscribing thread and by the tail, and never twice with the same."""

    def __init__(self, manager: Any, log_key: LogKey, cursor: str | None) -> None:
        super().__init__(manager, log_key, cursor)
        self._fetching = threading.Lock()

    def fetch(self) -> None:
        """Tell what is new. A log that grows between two looks from the same place would be told twice."""
        with self._fetching:
            super().fetch()


class LiveTail:
    """Looks for news of all subscribed logs twice a second, as long as there are any.

    Args:
        manager: Whom to ask whether a log is complete.
    """

    def __init__(self, manager: _Knows) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._subscriptions: list[CapturedLogSubscription] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()

    def add(self, subscription: CapturedLogSubscription) -> None:
        """Pass what comes to a subscription, until its log is complete."""
        with self._lock:
            self._subscriptions.append(subscription)
            if self._thread is None:
                self._changed.clear()
                self._thread = threading.Thread(target=self._run, name="oq-log-tail", daemon=True)
                self._thread.start()

    def remove(self, subscription: CapturedLogSubscription) -> None:
        """Stop passing output to a subscription."""
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
        self._changed.set()

    def close(self) -> None:
        """Forget all subscriptions, and wait for the thread."""
        with self._lock:
            self._subscriptions.clear()
            thread = self._thread
        self._changed.set()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._subscriptions:
                    self._thread = None
                    return
                subscribed = list(self._subscriptions)
            for subscription in subscribed:
                self._tell(subscription)
            self._changed.wait(_INTERVAL_S)
            self._changed.clear()

    def _tell(self, subscription: CapturedLogSubscription) -> None:
        try:
            # Asked first, so that nothing can come between the last look and the end.
            if self._manager.is_capture_complete(subscription.log_key):
                subscription.complete()
            subscription.fetch()
        except OrchestrationQueueError:  # the server is away; the next look will tell
            return
        if subscription.is_complete:
            self.remove(subscription)
