"""A worker's observer, for metrics."""

from __future__ import annotations

__all__ = ["ChasquiObserver"]


class ChasquiObserver:
    """Called on the worker's event loop for each event. Override the methods you need, and return quickly."""

    def read(self, entries: int, reclaimed: int) -> None:
        """Record that a read returned this many entries, `reclaimed` of them from workers that lost them."""

    def completed(self, name: str, seconds: float) -> None:
        """Record that a handler returned."""

    def failed(self, name: str, seconds: float) -> None:
        """Record that a handler raised."""

    def retried(self, name: str, pause_s: float) -> None:
        """Record that a job was put back for its next attempt."""

    def buried(self, name: str, reason: str) -> None:
        """Record that a job was moved to the dead-letter queue."""

    def promoted(self, jobs: int, delayed: int) -> None:
        """Record that this worker, as the promoter, made `jobs` ready; `delayed` are left."""

    def led(self, leads: bool) -> None:
        """Record that this worker has become the promoter, or no longer is."""
