"""The queue's settings for its workers, with the worker's own options as defaults."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestration_queue.options import WorkerOptions, milliseconds
from orchestration_queue.protocol.operations.queue_settings import StoredSettings

__all__ = ["QueueDefaults"]

_TICKS = 2


class QueueDefaults:
    """The effective settings: the queue's as last read, otherwise the worker's own.

    Args:
        options: The worker's own.
        clock: Returns seconds; for tests.

    Attributes:
        stored: The queue's settings, as last read.
    """

    def __init__(self, options: WorkerOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.stored = StoredSettings()
        self._options = options
        self._clock = clock
        self._longer_ms, self._longer_until = 0, clock()
        self._has_read = False

    @property
    def lease_ms(self) -> int:
        """The lease of jobs that start now, unless they have their own."""
        return self.stored.lease_ms or milliseconds(self._options.lease)

    @property
    def dead_letter_queue(self) -> str:
        """The dead-letter queue; empty for none."""
        return self.stored.dead_letter_queue or self._options.dead_letter_queue or ""

    @property
    def forgiven_ms(self) -> int:
        """The lease after which a job counts as stalled: after the lease became shorter, the previous one for a while.

        Other workers may not have read the change yet, and still renew by the longer one.
        """
        return max(self.lease_ms, self._longer_ms) if self._clock() < self._longer_until else self.lease_ms

    def update(self, stored: StoredSettings) -> None:
        """Apply the queue's current settings."""
        forgiven_ms, lease_ms, self.stored = self.forgiven_ms, self.lease_ms, stored
        if self.lease_ms < lease_ms and self._has_read:
            tick_ms = milliseconds(self._options.promotion_interval)
            self._longer_ms = forgiven_ms
            self._longer_until = self._clock() + max(forgiven_ms, _TICKS * tick_ms) / 1000
        self._has_read = True
