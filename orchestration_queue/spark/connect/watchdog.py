"""The thread beside a job's own: cuts its session when it has to stop, or when there is no server any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Literal, Self

__all__ = ["SessionWatchdog", "StopReason"]

StopReason = Literal["cancelled", "timeout", "server"]

_LOOK_S = 0.1


class SessionWatchdog:
    """Watches over one run until the context is left.

    Args:
        should_stop: Asked ten times a second; true stops the run.
        server_is_alive: Asked as often; false stops it, too.
        timeout: Stops it after this long.
        cut: What stops it. Called once, in the watching thread.

    Attributes:
        stop_reason: Why it was stopped; None when it was not.
    """

    def __init__(
        self,
        *,
        should_stop: Callable[[], bool],
        server_is_alive: Callable[[], bool],
        timeout: timedelta | None,
        cut: Callable[[], None],
    ) -> None:
        self.stop_reason: StopReason | None = None
        self._should_stop, self._server_lives, self._cut = should_stop, server_is_alive, cut
        self._deadline = time.monotonic() + timeout.total_seconds() if timeout else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="oq-spark-watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; a cut that is under way is waited for."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.stop_reason = self._find_stop_reason()
            if self.stop_reason:
                self._cut()
                return

    def _find_stop_reason(self) -> StopReason | None:
        if self._should_stop():
            return "cancelled"
        if self._deadline is not None and time.monotonic() > self._deadline:
            return "timeout"
        return None if self._server_lives() else "server"
