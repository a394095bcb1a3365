"""What the queue sets for its workers, and the worker's own options behind it."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestration_queue.options import WorkerOptions, milliseconds
from orchestration_queue.protocol.operations.queue_settings import StoredSettings

__all__ = ["QueueDefaults"]

_TICKS = 2


class QueueDefaults:
    """The settings in force: the queue's as last read, else the worker's own.

    Args:
        options: The worker's own.
        clock: Seconds; for tests.

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
        """The lease of jobs that start now, unless they name their own."""
        return self.stored.lease_ms or milliseconds(self._options.lease)

    @property
    def dead_letter_queue(self) -> str:
        """Where dead letters go; empty for nowhere."""
        return self.stored.dead_letter_queue or self._options.dead_letter_queue or ""

    @property
    def forgiven_ms(self) -> int:
        """How long a job may be silent: for a while after the lease became shorter, as long as the one before.

        Other workers may not have heard of it yet, and renew by the longer one.
        """
        return max(self.lease_ms, self._longer_ms) if self._clock() < self._longer_until else self.lease_ms

    def update(self, stored: StoredSettings) -> None:
        """Take what the queue says now."""
        forgiven_ms, lease_ms, self.stored = self.forgiven_ms, self.lease_ms, stored
        if self.lease_ms < lease_ms and self._has_read:
            tick_ms = milliseconds(self._options.promotion_interval)
            self._longer_ms = forgiven_ms
            self._longer_until = self._clock() + max(forgiven_ms, _TICKS * tick_ms) / 1000
        self._has_read = True
