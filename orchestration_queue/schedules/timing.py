"""When a schedule runs: the members of a stored entry that decide it, and the wire's arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestration_queue.errors import ScheduleError
from orchestration_queue.schedules.cron import CronPattern, known_zone

__all__ = ["MAX_SAFE_INTEGER", "Timing", "own", "positive", "whole"]

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that all languages that use this wire count to."""

_SHORTEST_DISTANCE_MS = 1000
"""Minimum time between two occurrences of a cron pattern."""


def whole(value: object) -> int | None:
    """Return a JSON number as an integer; None for anything that is not a safe integer."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SAFE_INTEGER:
        return value
    return None


def positive(value: object) -> int | None:
    """Return a JSON number as a positive integer; None for anything else."""
    number = whole(value)
    return number if number is not None and number > 0 else None


def own(members: Mapping[str, object]) -> Mapping[str, object]:
    """Return this package's own members of a stored entry, which other clients keep."""
    extra = members.get("oq")
    return extra if isinstance(extra, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule runs, in the wire's units. Equal timings run at the same times.

    Attributes:
        pattern: A cron pattern.
        every: Milliseconds between runs.
        repeat_after_complete: Milliseconds from the end of one job to the next.
        tz: The IANA name of the pattern's time zone; None for UTC.
        start_date: No run before, epoch ms.
        end_date: No run after, epoch ms.
        day_or: Whether one of the pattern's days of month and days of week is enough. Other clients must not see such a
            pattern.
    """

    pattern: str | None = None
    every: int | None = None
    repeat_after_complete: int | None = None
    tz: str | None = None
    start_date: int | None = None
    end_date: int | None = None
    day_or: bool = False

    @classmethod
    def read(cls, members: Mapping[str, object]) -> Timing:
        """Read a stored entry's members; invalid ones count as absent."""
        hidden = own(members).get("cron")
        if isinstance(hidden, str) and hidden:
            members = {**members, "pattern": hidden, "every": None, "repeatAfterComplete": None}
        else:
            hidden = None
        return cls(
            pattern=_text(members.get("pattern")),
            every=positive(members.get("every")),
            repeat_after_complete=positive(members.get("repeatAfterComplete")),
            tz=_text(members.get("tz")),
            start_date=whole(members.get("startDate")),
            end_date=whole(members.get("endDate")),
            day_or=hidden is not None and (len(hidden.split()) == 5 or own(members).get("dayOr") is True),
        )

    def members(self) -> dict[str, object]:
        """Return the members of a stored entry, without absent ones."""
        members = {
            "pattern": None if self.is_ours else self.pattern,
            # Other clients keep an entry that has a time to run, and skip it while it has no next run.
            "every": MAX_SAFE_INTEGER if self.is_ours else self.every,
            "repeatAfterComplete": self.repeat_after_complete,
            "tz": self.tz,
            "startDate": self.start_date,
            "endDate": self.end_date,
        }
        return {name: value for name, value in members.items() if value is not None}

    @property
    def is_ours(self) -> bool:
        """Whether other clients must not see the pattern, because they would read it differently."""
        return self.pattern is not None and (self.day_or or len(self.pattern.split()) > 5)

    @property
    def hidden_members(self) -> dict[str, object]:
        """Return our own members that store such a pattern."""
        if not self.is_ours or self.pattern is None:
            return {}
        has_seconds = len(self.pattern.split()) > 5
        return {"cron": self.pattern, **({"dayOr": True} if has_seconds and self.day_or else {})}

    @property
    def is_complete(self) -> bool:
        """Whether it says when to run."""
        return bool(self.pattern or self.every or self.repeat_after_complete)

    @property
    def repeats_after_complete(self) -> bool:
        """Whether each run depends on the end of the previous job."""
        return not (self.pattern or self.every) and self.repeat_after_complete is not None

    def ends_before(self, at_ms: int) -> bool:
        """Whether a time is beyond the end."""
        return self.end_date is not None and at_ms > self.end_date

    def first_run(self, now_ms: int) -> int | None:
        """Return the first run of a schedule that is set now; None if it is beyond the end.

        Raises:
            ScheduleError: The pattern or its time zone is invalid, or never occurs.
        """
        start_ms = self.start_date
        if self.pattern:
            return self._within(self._occurrence_after(max(now_ms, now_ms if start_ms is None else start_ms) - 1))
        if start_ms is not None and start_ms > now_ms:
            return self._within(start_ms)
        if not self.every:
            return self._within(now_ms)
        if start_ms is None:
            return self._within(now_ms + self.every)
        return self._within(now_ms + (start_ms - now_ms) % self.every)

    def following_run(self, planned_ms: int, after_ms: int) -> int | None:
        """Return the run after the one planned for ``planned_ms`` and added at ``after_ms``.

        Runs missed in between are skipped; ``every`` keeps its phase. None if it is beyond the end.

        Raises:
            ScheduleError: The pattern or its time zone is invalid, or never occurs again.
        """
        if self.pattern:
            return self._within(self._occurrence_after(after_ms))
        if self.every:
            missed = (after_ms - planned_ms) // self.every + 1 if planned_ms <= after_ms else 0
            return self._within(planned_ms + missed * self.every)
        return self._within(after_ms + (self.repeat_after_complete or 0))

    def _occurrence_after(self, after_ms: int) -> int:
        return CronPattern.parse(self.pattern or "", day_or=self.day_or).next_after(after_ms, known_zone(self.tz))

    def runs_until(self, due_ms: int, until_ms: int, most: int) -> list[int]:
        """Return the latest runs from the one planned for ``due_ms`` up to a time, inclusive, oldest first.

        Raises:
            ScheduleError: The pattern or its time zone is invalid.
        """
        if due_ms > until_ms:
            return []
        if self.every:
            last_ms = due_ms + (until_ms - due_ms) // self.every * self.every
            runs = range(max(due_ms, last_ms - (most - 1) * self.every), last_ms + 1, self.every)
            return [run_ms for run_ms in runs if not self.ends_before(run_ms)]
        if not self.pattern:
            return [due_ms]
        span_ms = most * _SHORTEST_DISTANCE_MS
        while True:
            start_ms = max(due_ms - 1, until_ms - span_ms)
            found = list(self._occurrences(start_ms, until_ms))
            if len(found) >= most or start_ms < due_ms:
                return found[-most:]
            span_ms *= 4

    def _occurrences(self, after_ms: int, until_ms: int) -> Iterator[int]:
        while True:
            try:
                after_ms = self._occurrence_after(after_ms)
            except ScheduleError:
                return
            if after_ms > until_ms or self.ends_before(after_ms):
                return
            yield after_ms

    def _within(self, run_ms: int) -> int | None:
        return None if self.ends_before(run_ms) else run_ms
