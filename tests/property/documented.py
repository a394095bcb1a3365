"""What glide-mq's documents say of limits, deduplication and retention, as plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Bucket", "Limit", "Standing", "Window", "answer", "kept"]


class Limit(Protocol):
    """What keeps jobs of an ordering key from starting, other than their order and number."""

    def start(self, now: int, cost: int, is_first: bool) -> None:
        """Note that a job starts; fail when it may not. An attempt after the first pays, but does not wait."""

    def agrees(self, group: Mapping[str, str], now: int) -> bool:
        """Return whether the fields of the group say the same."""


@dataclass
class Window:
    """At most ``most`` starts in ``duration``, which begins with the first of them."""

    most: int
    duration: int
    begun: int | None = None
    starts: int = 0

    def start(self, now: int, cost: int, is_first: bool) -> None:
        if self.begun is None or now - self.begun >= self.duration:
            self.begun, self.starts = now, 0
        assert self.starts < self.most or not is_first, f"more than {self.most} starts in a window"
        self.starts += 1

    def agrees(self, group: Mapping[str, str], now: int) -> bool:
        known = (group.get("rateWindowStart"), group.get("rateCount"))
        return known == ((None, None) if self.begun is None else (str(self.begun), str(self.starts)))


@dataclass
class Bucket:
    """Holds up to ``capacity`` thousandths of tokens, gains ``rate`` of them a second, and pays for each start."""

    capacity: int
    rate: int
    level: int
    refilled: int = 0

    def start(self, now: int, cost: int, is_first: bool) -> None:
        self.level, self.refilled = self.at(now, self.level, self.refilled), now
        assert self.level >= cost or not is_first, f"a job of {cost} started with {self.level} thousandths"
        self.level -= cost

    def at(self, now: int, level: int, refilled: int) -> int:
        """Return the level now, from what it was when it was last refilled."""
        gained = (now - refilled) * self.rate
        assert gained % 1000 == 0, "the model counts whole thousandths"
        return min(self.capacity, level + gained // 1000)

    def agrees(self, group: Mapping[str, str], now: int) -> bool:
        if "tbTokens" not in group:
            return True
        known = self.at(now, int(group["tbTokens"]), int(group["tbLastRefill"]))
        return known == self.at(now, self.level, self.refilled)


@dataclass(frozen=True)
class Standing:
    """The last job that was added under a deduplication id."""

    job_id: str
    added: int


def answer(mode: str, ttl: int, standing: Standing | None, state: str | None, now: int) -> str:
    """Return what a job is, by the mode of its deduplication: `skipped`, `added`, or what it `replaces`.

    Args:
        mode: The mode.
        ttl: How long `throttle` remembers.
        standing: The last job of that id.
        state: Its state; None when it is gone.
        now: The time.
    """
    if standing is None:
        return "added"
    if mode == "throttle":
        return "skipped" if now - standing.added < ttl else "added"
    if state in (None, "completed", "failed"):
        return "added"
    return "replaces" if mode == "debounce" and state in ("delayed", "prioritized") else "skipped"


def kept(finished: Mapping[str, int], job_id: str, now: int, mode: str, count: int, age_s: int) -> set[str]:
    """Return which finished jobs stay when another finishes.

    Args:
        finished: Those that were there, and when they finished.
        job_id: The one that finishes.
        now: The time.
        mode: `true` keeps it not; `count` keeps the last; `age_count` drops older ones first; else all stay.
        count: How many `count` and `age_count` keep; 0 is no limit.
        age_s: The age of `age_count`, in seconds; 0 is no limit.
    """
    if mode == "true":
        return set(finished) - {job_id}
    oldest_first = sorted({**finished, job_id: now}.items(), key=lambda item: (item[1], item[0]))
    if mode == "age_count" and age_s:
        oldest_first = [(name, at) for name, at in oldest_first if at > now - age_s * 1000]
    if mode in ("count", "age_count") and count:
        oldest_first = oldest_first[-count:]
    return {name for name, _ in oldest_first}
