"""Random programs of a queue: jobs, schedules and undecodable entries, for both implementations to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.chasquimq.redis86 import IS_REAL

__all__ = ["LARGEST", "Cancel", "JobOrder", "Program", "Repeat"]

LARGEST = 2000
"""The workers' `max_payload_bytes`."""
UNDECODABLE: list[dict[str, bytes]] = [
    {"d": b"\xc1"},
    {"d": b""},
    {"d": b"\x93\x01\x02"},
    {"n": b"no data"},
    {"d": b"\x90", "n": b"named"},
    {"d": b"x" * (LARGEST + 1)},
    {"d": b"\x93\xa1i\xc4\x01x\x01", "n": b"\xff\xfe"},
]
RESULTS: list[Any] = [None, False, 0, "", [], {"rows": 3}, "done", b"\x00\xff"]


@dataclass(frozen=True)
class JobOrder:
    """A job, and what its handler does with it."""

    label: str
    failures: int
    """How many attempts fail."""
    is_hopeless: bool
    """Whether a failure is final."""
    result: Any
    attempts: int | None
    backoff: tuple[Any, ...] | None
    """`fixed` and ms, or `exponential` with ms, multiplier and most; no jitter."""
    delay_ms: int
    job_id: str | None

    @property
    def data(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "failures": self.failures,
            "is_hopeless": self.is_hopeless,
            "result": self.result,
        }


@dataclass(frozen=True)
class Cancel:
    """A cancel of an id, whether or not a job of it waits."""

    job_id: str


@dataclass(frozen=True)
class Repeat:
    """A schedule each minute, of which some fires were missed."""

    label: str
    missed_ms: int
    policy: str
    most: int
    """How many missed fires `fire_all` makes up for."""
    limit: int | None
    bounds_ms: tuple[int | None, int | None]
    """From when and until when it fires, from now."""
    is_removed: bool
    """Whether it is removed in the end; then a second time."""

    @property
    def data(self) -> dict[str, Any]:
        return {"label": self.label, "failures": 0, "is_hopeless": False, "result": None}


@dataclass
class Program:
    """What happens in one run; the seed repeats it."""

    seed: int
    steps: list[JobOrder | Cancel | dict[str, bytes]] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    in_bulk: list[JobOrder] = field(default_factory=list)
    replays: bool = False
    """Whether all dead letters are put back in the end, so that their jobs run again."""

    def __post_init__(self) -> None:
        chance = Random(self.seed)
        self.in_bulk = [self._job(chance, f"b{number}", is_plain=True) for number in range(chance.choice((0, 0, 3)))]
        for number in range(chance.randint(4, 10)):
            kind = chance.random()
            if kind < 0.12:
                self.steps.append(chance.choice(UNDECODABLE))
            elif kind < 0.3:
                self.steps.append(Cancel(f"{self.seed}-{chance.choice('ab')}"))
            else:
                self.steps.append(self._job(chance, f"j{number}"))
        for number in range(chance.choice((0, 0, 1, 2))):
            policy = chance.choice(("skip", "fire_once", "fire_all"))
            missed = chance.choice((30_000, 90_000, 330_000))
            most, limit = chance.choice((1, 3, 9)), chance.choice((None, None, 1, 2, 3))
            bounds = chance.choice((None, None, -200_000)), chance.choice((None, None, 200_000, 61_000))
            self.repeats.append(Repeat(f"r{number}", missed, policy, most, limit, bounds, chance.random() < 0.5))
        self.replays = chance.random() < 0.4

    def _job(self, chance: Random, label: str, *, is_plain: bool = False) -> JobOrder:
        backoff = chance.choice(
            [("fixed", 0), ("fixed", 15), ("exponential", 5, 2.0, None), ("exponential", 8, 3.0, 20), ("fixed", 1)]
        )
        delay_ms = chance.choice((0, 0, 0, 30, 600_000))
        # The original takes an id of jobs that start at once only on Redis 8.6, and then for each process of its own.
        ids = {0: "d" if IS_REAL else "", 30: "c", 600_000: "ab"}[
            delay_ms
        ]  # what is cancelled must not be due meanwhile
        return JobOrder(
            label,
            failures=chance.choice((0, 0, 1, 2, 9)),
            is_hopeless=chance.random() < 0.2,
            result=chance.choice(RESULTS),
            attempts=None if is_plain else chance.choice((None, 1, 2, 3)),
            backoff=None if is_plain else backoff,
            delay_ms=0 if is_plain else delay_ms,
            job_id=None if is_plain else chance.choice((None, *(f"{self.seed}-{name}" for name in ids))),
        )
