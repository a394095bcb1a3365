"""Statistics of a queue and day: how long jobs waited and ran, and how many failed, by task name.

They are fields of one hash per day, each of which is only ever added to, so that any number of workers write them:
``wait:n:TASK``, ``wait:s:TASK`` and ``wait:q:TASK`` are the count, the sum of the milliseconds and the sum of the
squared seconds, ``wait:17:TASK`` counts those of bucket 17; ``run:...`` likewise; ``failed:TASK`` and ``retried:TASK``
are counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

__all__ = ["DayStatistics", "Distribution", "Tally", "TaskStatistics", "read_day"]

_PER_OCTAVE = 4
_LAST_BUCKET = 130
_LONGEST_NAME = 100
_MOST_NAMES = 100


def _bucket(milliseconds: int) -> int:
    """The bucket of a duration: each is 19 % wider than the one before; the first ends at 1 ms."""
    return min(_LAST_BUCKET, math.ceil(_PER_OCTAVE * math.log2(milliseconds))) if milliseconds > 1 else 0


def _end_ms(bucket: int) -> float:
    return float(2 ** (bucket / _PER_OCTAVE))


@dataclass(frozen=True)
class Distribution:
    """How long something took, over many jobs.

    Attributes:
        count: How many jobs.
        total: Their time together.
        squares: The sum of their squared seconds.
        buckets: Counts by bucket of the histogram, each 19 % wider than the one before.
    """

    count: int = 0
    total: timedelta = timedelta(0)
    squares: float = field(default=0.0, repr=False)
    buckets: Mapping[int, int] = field(default_factory=dict, repr=False)

    @property
    def mean(self) -> timedelta:
        """The average; 0 without jobs."""
        return self.total / self.count if self.count else timedelta(0)

    @property
    def deviation(self) -> timedelta:
        """The standard deviation; 0 for less than two jobs."""
        if self.count < 2:
            return timedelta(0)
        mean_s = self.mean.total_seconds()
        variance = (self.squares - self.count * mean_s * mean_s) / (self.count - 1)
        return timedelta(seconds=math.sqrt(max(0.0, variance)))

    @property
    def histogram(self) -> list[tuple[timedelta, int]]:
        """The buckets that hold any jobs, shortest first: the longest duration of each, and its count."""
        return [(timedelta(milliseconds=_end_ms(bucket)), self.buckets[bucket]) for bucket in sorted(self.buckets)]

    def quantile(self, part: float) -> timedelta:
        """The duration that this part of the jobs did not exceed, to within 10 %; 0 without jobs."""
        left = part * sum(self.buckets.values())
        for bucket in sorted(self.buckets):
            if left <= self.buckets[bucket]:
                start = _end_ms(bucket - 1) if bucket else 0.0
                inside = max(0.0, left) / self.buckets[bucket]
                return timedelta(milliseconds=start + inside * (_end_ms(bucket) - start))
            left -= self.buckets[bucket]
        return timedelta(0)

    @property
    def p50(self) -> timedelta:
        """The median."""
        return self.quantile(0.5)

    @property
    def p90(self) -> timedelta:
        """What nine of ten jobs did not exceed."""
        return self.quantile(0.9)

    @property
    def p99(self) -> timedelta:
        """What 99 of 100 jobs did not exceed."""
        return self.quantile(0.99)

    def __add__(self, other: Distribution) -> Distribution:
        buckets = dict(self.buckets)
        for bucket, count in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        return Distribution(self.count + other.count, self.total + other.total, self.squares + other.squares, buckets)


@dataclass(frozen=True)
class TaskStatistics:
    """What happened to the jobs of one task, or of all.

    Attributes:
        wait: How long jobs waited, from when they were due until their first attempt began.
        run: How long the attempts took that completed.
        failed: How many jobs failed for good.
        retried: How many attempts failed and were followed by another.
    """

    wait: Distribution = field(default_factory=Distribution)
    run: Distribution = field(default_factory=Distribution)
    failed: int = 0
    retried: int = 0

    @property
    def completed(self) -> int:
        """How many jobs completed."""
        return self.run.count

    def __add__(self, other: TaskStatistics) -> TaskStatistics:
        return TaskStatistics(
            self.wait + other.wait, self.run + other.run, self.failed + other.failed, self.retried + other.retried
        )


@dataclass(frozen=True)
class DayStatistics:
    """What happened in a queue on one day.

    Attributes:
        day: The day, in UTC.
        tasks: The statistics of each task, by its name.
    """

    day: date
    tasks: Mapping[str, TaskStatistics]

    @property
    def all(self) -> TaskStatistics:
        """Those of all tasks together."""
        return sum(self.tasks.values(), TaskStatistics())


class Tally:
    """What one worker counted and has not sent yet."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._names: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def _add(self, name: str, by: float) -> None:
        self._counts[name] = self._counts.get(name, 0) + by

    def _task(self, name: str) -> str:
        """The name under which a task is counted; made-up names beyond a hundred are counted as one."""
        name = name[:_LONGEST_NAME].encode("utf-8", "replace").decode()
        if name not in self._names and len(self._names) >= _MOST_NAMES:
            return "(others)"
        self._names.add(name)
        return name

    def _took(self, what: str, task: str, milliseconds: int) -> None:
        ms = max(0, milliseconds)
        self._add(f"{what}:n:{task}", 1)
        self._add(f"{what}:s:{task}", ms)
        self._add(f"{what}:q:{task}", ms * ms / 1e6)
        self._add(f"{what}:{_bucket(ms)}:{task}", 1)

    def waited(self, name: str, milliseconds: int) -> None:
        """Count how long a job waited for its first attempt."""
        self._took("wait", self._task(name), milliseconds)

    def completed(self, name: str, milliseconds: int) -> None:
        """Count a completed job, and how long its attempt took."""
        self._took("run", self._task(name), milliseconds)

    def failed(self, name: str, *, will_retry: bool) -> None:
        """Count a failed attempt."""
        self._add(f"{'retried' if will_retry else 'failed'}:{self._task(name)}", 1)

    def take(self) -> list[tuple[str, str]]:
        """Return the fields and what to add to each, and start over."""
        counts, self._counts = self._counts, {}
        self._names.clear()
        return [(name, f"{by:.6f}".rstrip("0").rstrip(".")) for name, by in counts.items()]


def read_day(day: date, fields: Iterable[tuple[str, str]]) -> DayStatistics:
    """Read the hash of a day, without what is not ours."""
    numbers: dict[str, dict[str, float]] = {}
    for name, stored in fields:
        kind, _, rest = name.partition(":")
        part, task = rest.split(":", 1) if kind in ("wait", "run") and ":" in rest else ("", rest)
        try:
            numbers.setdefault(task, {})[f"{kind}:{part}"] = float(stored)
        except ValueError:
            continue
    return DayStatistics(day, {task: _task(numbers[task]) for task in sorted(numbers)})


def _task(numbers: Mapping[str, float]) -> TaskStatistics:
    failed, retried = (int(numbers.get(f"{kind}:", 0)) for kind in ("failed", "retried"))
    return TaskStatistics(_distribution(numbers, "wait"), _distribution(numbers, "run"), failed, retried)


def _distribution(numbers: Mapping[str, float], kind: str) -> Distribution:
    parts = {name.removeprefix(f"{kind}:"): number for name, number in numbers.items() if name.startswith(f"{kind}:")}
    return Distribution(
        int(parts.get("n", 0)),
        timedelta(milliseconds=parts.get("s", 0)),
        parts.get("q", 0.0),
        {int(bucket): int(number) for bucket, number in parts.items() if bucket.isdecimal()},
    )
