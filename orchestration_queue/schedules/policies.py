"""A schedule's policies for runs that are late, that overlap, or that would all be due at the same second."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestration_queue.options import Options
from orchestration_queue.schedules.timing import whole

__all__ = ["MAX_MISSED", "MissedRuns", "Overlap", "Policies"]

MAX_MISSED = 1000
"""Maximum missed runs of one schedule to make up for."""


class MissedRuns(Options):
    """What happens to runs that were missed because no worker was running.

    Examples:
        >>> MissedRuns.fire_all(max=24).mode
        'fire_all'
    """

    mode: Literal["skip", "fire_once", "fire_all"] = "fire_once"
    """What is added for missed runs.

    ``fire_once`` adds one job for any number of missed runs, as all clients of the wire do; ``skip`` adds none;
    ``fire_all`` adds a job for each, oldest first.
    """
    max: Annotated[int, Field(ge=1, le=MAX_MISSED)] | None = None
    """For ``fire_all``: how many of the latest runs to make up for; older ones are skipped."""

    @model_validator(mode="after")
    def _only_all_have_a_bound(self) -> MissedRuns:
        if (self.mode == "fire_all") is (self.max is None):
            raise ValueError("fire_all needs a max, and other modes have none; use MissedRuns.fire_all(max=...)")
        return self

    @classmethod
    def skip(cls) -> MissedRuns:
        """Skip runs that are noticed more than a minute late, or two promotion intervals if that is longer."""
        return cls(mode="skip")

    @classmethod
    def fire_once(cls) -> MissedRuns:
        """Add one job, no matter how many runs were missed."""
        return cls(mode="fire_once")

    @classmethod
    def fire_all(cls, max: int) -> MissedRuns:  # noqa: A002  what users call it
        """Add a job for each of the latest ``max`` missed runs, oldest first."""
        return cls(mode="fire_all", max=max)


class Overlap(StrEnum):
    """What a run does while the previous run's job has not ended."""

    ALLOW = "allow"
    """Add its job anyway."""
    SKIP = "skip"
    """Skip the run."""
    QUEUE_ONE = "queue_one"
    """Add its job when the previous one has ended; if more runs come due meanwhile, only the latest."""
    REPLACE = "replace"
    """Revoke the previous job and add its own."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of one entry, as stored. Invalid ones count as absent, which means the wire's behavior.

    Attributes:
        missed: What happens to late runs: ``skip``, ``fire_once`` or ``fire_all``.
        missed_max: For ``fire_all``: maximum number.
        overlap: What a run does while the previous one has not ended.
        jitter_ms: Maximum delay of runs after their planned time.
    """

    missed: str = "fire_once"
    missed_max: int = 1
    overlap: Overlap = Overlap.ALLOW
    jitter_ms: int = 0

    @classmethod
    def read(cls, extra: Mapping[str, object]) -> Policies:
        """Read the members that the wire doesn't define."""
        missed, overlap = extra.get("missed"), extra.get("overlap")
        return cls(
            missed=missed if isinstance(missed, str) and missed in ("skip", "fire_all") else "fire_once",
            missed_max=min(max(1, whole(extra.get("missedMax")) or 1), MAX_MISSED),
            overlap=Overlap(overlap) if isinstance(overlap, str) and overlap in _OVERLAPS else Overlap.ALLOW,
            jitter_ms=max(0, whole(extra.get("jitter")) or 0),
        )

    def members(self) -> dict[str, object]:
        """Return the members to store, without those that equal the wire's behavior."""
        usual = Policies()
        members: dict[str, object] = {}
        if self.missed != usual.missed:
            members["missed"] = self.missed
        if self.missed == "fire_all":
            members["missedMax"] = self.missed_max
        if self.overlap is not usual.overlap:
            members["overlap"] = str(self.overlap)
        if self.jitter_ms:
            members["jitter"] = self.jitter_ms
        return members

    def delay_ms(self, scheduler: str, due_ms: int) -> int:
        """Return how much later than planned a run is due: the same for every leader, and uniformly distributed."""
        if not self.jitter_ms:
            return 0
        digest = hashlib.sha256(f"{scheduler}\0{due_ms}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % (self.jitter_ms + 1)


_OVERLAPS = frozenset(Overlap)
