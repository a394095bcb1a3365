"""What a worker reports of its work, for metrics."""

from __future__ import annotations

__all__ = ["ChasquiObserver"]


class ChasquiObserver:
    """Is called on the worker's event loop as things happen. Override what is of interest; return soon."""

    def read(self, entries: int, reclaimed: int) -> None:
        """Note that a read returned this many entries, `reclaimed` of them from workers that lost them."""

    def completed(self, name: str, seconds: float) -> None:
        """Note that a handler returned."""

    def failed(self, name: str, seconds: float) -> None:
        """Note that a handler raised."""

    def retried(self, name: str, pause_s: float) -> None:
        """Note that a job was put back for its next attempt."""

    def buried(self, name: str, reason: str) -> None:
        """Note that a job was moved to the dead-letter queue."""

    def promoted(self, jobs: int, delayed: int) -> None:
        """As the promoter this worker made `jobs` ready; `delayed` are left."""

    def led(self, leads: bool) -> None:
        """Note that this worker has become the promoter, or no longer is."""
