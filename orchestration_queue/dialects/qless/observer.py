"""What a worker reports of its work, for metrics."""

from __future__ import annotations

from typing import Literal

from orchestration_queue.dialects.qless.records import QlessJob

__all__ = ["Outcome", "QlessObserver"]

Outcome = Literal["completed", "advanced", "failed", "retried"]


class QlessObserver:
    """Is called on the worker's event loop as things happen. Override what is of interest; return soon."""

    def taken(self, queue: str, jobs: int) -> None:
        """Note that the worker asked a queue and got this many jobs."""

    def ended(self, job: QlessJob, outcome: Outcome, seconds: float) -> None:
        """Note that a handler ended; this outcome goes to the server, where a retry without retries left fails."""

    def lost(self, job: QlessJob) -> None:
        """Note that a running job is no longer the worker's."""
