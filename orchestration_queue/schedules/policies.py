"""What a schedule does about runs that are late, that overlap, or that would all come at the same second."""

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
"""The most missed runs of one schedule that are ever made up for."""


class MissedRuns(Options):
    """What becomes of runs that were missed because no worker ran.

    Examples:
        >>> MissedRuns.fire_all(max=24).mode
        'fire_all'
    """

    mode: Literal["skip", "fire_once", "fire_all"] = "fire_once"
    """``fire_once`` makes up for any number of missed runs with one job, as every client of the wire does; ``skip``
    leaves them out; ``fire_all`` makes a job for each, the oldest first."""
    max: Annotated[int, Field(ge=1, le=MAX_MISSED)] | None = None
    """Of ``fire_all``: how many of the latest runs to make up for; older ones are skipped."""

    @model_validator(mode="after")
    def _only_all_have_a_bound(self) -> MissedRuns:
        if (self.mode == "fire_all") is (self.max is None):
            raise ValueError("fire_all needs a max, and only fire_all has one; use MissedRuns.fire_all(max=...)")
        return self

    @classmethod
    def skip(cls) -> MissedRuns:
        """Leave out runs that are noticed more than a minute late, or two rounds of the workers' housekeeping."""
        return cls(mode="skip")

    @classmethod
    def fire_once(cls) -> MissedRuns:
        """Make one job, however many runs were missed."""
        return cls(mode="fire_once")

    @classmethod
    def fire_all(cls, max: int) -> MissedRuns:  # noqa: A002  what users call it
        """Make a job for each of the latest ``max`` runs that were missed, the oldest first."""
        return cls(mode="fire_all", max=max)


class Overlap(StrEnum):
    """What a run does while the job of the run before has not ended."""

    ALLOW = "allow"
    """It is made all the same."""
    SKIP = "skip"
    """It is left out."""
    QUEUE_ONE = "queue_one"
    """It is made when that job has ended; if more come due meanwhile, the latest alone."""
    REPLACE = "replace"
    """It is made, and that job is revoked."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of one entry, as stored. What cannot be read counts as absent, and so as the wire's behaviour.

    Attributes:
        missed: What becomes of late runs: ``skip``, ``fire_once`` or ``fire_all``.
        missed_max: Of ``fire_all``: how many at most.
        overlap: What a run does while the one before has not ended.
        jitter_ms: Runs are made up to this much later than planned.
    """

    missed: str = "fire_once"
    missed_max: int = 1
    overlap: Overlap = Overlap.ALLOW
    jitter_ms: int = 0

    @classmethod
    def read(cls, extra: Mapping[str, object]) -> Policies:
        """Read the members that the wire does not know."""
        missed, overlap = extra.get("missed"), extra.get("overlap")
        return cls(
            missed=missed if isinstance(missed, str) and missed in ("skip", "fire_all") else "fire_once",
            missed_max=min(max(1, whole(extra.get("missedMax")) or 1), MAX_MISSED),
            overlap=Overlap(overlap) if isinstance(overlap, str) and overlap in _OVERLAPS else Overlap.ALLOW,
            jitter_ms=max(0, whole(extra.get("jitter")) or 0),
        )

    def members(self) -> dict[str, object]:
        """Return the same as members to store; what is as on the wire is left out."""
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
        """How much later than planned a run is made: the same for every leader, and spread evenly."""
        if not self.jitter_ms:
            return 0
        digest = hashlib.sha256(f"{scheduler}\0{due_ms}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % (self.jitter_ms + 1)


_OVERLAPS = frozenset(Overlap)
