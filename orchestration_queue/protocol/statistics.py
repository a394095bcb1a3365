"""Statistics of a queue and day: how long jobs waited and ran, and how many failed, by task name.

They are fields of one hash per day, which workers only increment, so that any number of workers can write them:
``wait:n:TASK``, ``wait:s:TASK`` and ``wait:q:TASK`` are the count, the sum of the milliseconds and the sum of the
squared seconds, ``wait:17:TASK`` counts those of bucket 17; ``run:...`` likewise; ``failed:TASK``, ``retried:TASK``
and ``steps:TASK`` are counts, and ``failed.KIND:TASK`` counts those that failed with one kind of failure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from orchestration_queue.protocol.call import Call, Operation
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs, when

__all__ = ["DayStatistics", "Distribution", "Tally", "TaskStatistics", "count", "read_day", "statistics"]

_PER_OCTAVE = 4
# It ends at 70 days, and also counts what took longer.
_LAST_BUCKET = 130
_LONGEST_NAME = 100
_MOST_NAMES = 100
_MOST_KINDS = 20
_OTHERS = "(others)"
_KIND = "failed."
_COUNTS = ("failed", "retried", "steps")


def _bucket(milliseconds: int) -> int:
    """Return the bucket of a duration: each is 19 % wider than the one before; the first ends at 1 ms."""
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
        """Return the duration that this fraction of the jobs did not exceed, to within 10 %; 0 without jobs."""
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
        """The duration that 90 % of the jobs did not exceed."""
        return self.quantile(0.9)

    @property
    def p95(self) -> timedelta:
        """The duration that 95 % of the jobs did not exceed."""
        return self.quantile(0.95)

    @property
    def p99(self) -> timedelta:
        """The duration that 99 % of the jobs did not exceed."""
        return self.quantile(0.99)

    def __add__(self, other: Distribution) -> Distribution:
        buckets = dict(self.buckets)
        for bucket, count in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        return Distribution(self.count + other.count, self.total + other.total, self.squares + other.squares, buckets)


@dataclass(frozen=True)
class TaskStatistics:
    """Statistics of the jobs of one task, or of all.

    Attributes:
        wait: How long jobs waited, from when they were due until their first attempt began.
        run: How long the attempts took that completed.
        failed: How many jobs failed for good.
        retried: How many attempts failed and were followed by another.
        kinds: How many jobs failed for good by kind of failure, as far as workers recorded it; earlier versions don't.
        steps: How many durable steps stored their outcome.
    """

    wait: Distribution = field(default_factory=Distribution)
    run: Distribution = field(default_factory=Distribution)
    failed: int = 0
    retried: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0

    @property
    def completed(self) -> int:
        """How many jobs completed."""
        return self.run.count

    def __add__(self, other: TaskStatistics) -> TaskStatistics:
        kinds = Counter(self.kinds)
        kinds.update(other.kinds)
        return TaskStatistics(
            self.wait + other.wait,
            self.run + other.run,
            self.failed + other.failed,
            self.retried + other.retried,
            dict(kinds),
            self.steps + other.steps,
        )


@dataclass(frozen=True)
class DayStatistics:
    """Statistics of a queue on one day.

    Attributes:
        day: The day, in UTC.
        tasks: The statistics of each task, by its name.
    """

    day: date
    tasks: Mapping[str, TaskStatistics]

    @property
    def all(self) -> TaskStatistics:
        """The statistics of all tasks together."""
        return sum(self.tasks.values(), TaskStatistics())


class _Durations:
    """A :class:`Distribution` while it is counted."""

    def __init__(self) -> None:
        self.count = self.total_ms = self.squares_ms = 0
        self.buckets: dict[int, int] = {}

    def add(self, milliseconds: int) -> None:
        """Count one duration."""
        ms = max(0, milliseconds)
        self.count += 1
        self.total_ms += ms
        self.squares_ms += ms * ms
        bucket = _bucket(ms)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def fields(self, what: str, task: str) -> Iterator[tuple[str, str]]:
        """Yield the fields of the day's hash, and what to add to each."""
        if self.count:
            yield f"{what}:n:{task}", str(self.count)
            yield f"{what}:s:{task}", str(self.total_ms)
            yield f"{what}:q:{task}", f"{self.squares_ms / 1e6:.6f}".rstrip("0").rstrip(".")
            for bucket, count in self.buckets.items():
                yield f"{what}:{bucket}:{task}", str(count)


class _TaskTally:
    """One worker's counts of one task."""

    def __init__(self) -> None:
        self.wait, self.run = _Durations(), _Durations()
        self.failed = self.retried = self.steps = 0
        self._kinds: dict[str, int] = {}

    def fail(self, kind: str) -> None:
        """Count a job that failed for good. Kinds beyond the first twenty are counted as one."""
        self.failed += 1
        kind = _shorten(kind).replace(":", ".") or _OTHERS
        if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            kind = _OTHERS
        self._kinds[kind] = self._kinds.get(kind, 0) + 1

    def fields(self, task: str) -> Iterator[tuple[str, str]]:
        """Yield the fields of the day's hash, and what to add to each."""
        yield from self.wait.fields("wait", task)
        yield from self.run.fields("run", task)
        yield from ((f"{what}:{task}", str(n)) for what in _COUNTS if (n := getattr(self, what)))
        yield from ((f"{_KIND}{kind}:{task}", str(n)) for kind, n in self._kinds.items())


def _shorten(name: str) -> str:
    return name[:_LONGEST_NAME].encode("utf-8", "replace").decode()


class Tally:
    """One worker's counts that have not been sent yet."""

    def __init__(self) -> None:
        self._tasks: dict[str, _TaskTally] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def task(self, name: str) -> _TaskTally:
        """Return the counts of a task. Names beyond the first hundred are counted as one."""
        if (found := self._tasks.get(name)) is None:
            name = _shorten(name)
            if name not in self._tasks and len(self._tasks) >= _MOST_NAMES:
                name = _OTHERS
            found = self._tasks.setdefault(name, _TaskTally())
        return found

    def take(self) -> list[tuple[str, str]]:
        """Return the fields and what to add to each, and start over."""
        tasks, self._tasks = self._tasks, {}
        return [field for name, task in tasks.items() for field in task.fields(name)]


def read_day(day: date, fields: Iterable[tuple[str, str]]) -> DayStatistics:
    """Read the hash of a day, without unknown fields."""
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
    failed, retried, steps = (int(numbers.get(f"{kind}:", 0)) for kind in _COUNTS)
    kinds = {name[len(_KIND) : -1]: int(number) for name, number in numbers.items() if name.startswith(_KIND)}
    return TaskStatistics(_distribution(numbers, "wait"), _distribution(numbers, "run"), failed, retried, kinds, steps)


def _distribution(numbers: Mapping[str, float], kind: str) -> Distribution:
    parts = {name.removeprefix(f"{kind}:"): number for name, number in numbers.items() if name.startswith(f"{kind}:")}
    return Distribution(
        int(parts.get("n", 0)),
        timedelta(milliseconds=parts.get("s", 0)),
        parts.get("q", 0.0),
        {int(bucket): int(number) for bucket, number in parts.items() if bucket.isdecimal()},
    )


def count(keys: QueueKeys, now_ms: int, tally: Tally) -> Call:
    """Add a worker's counts to the statistics of the day, and reset them."""
    now = when(now_ms)
    day = "1970-01-01" if now is None else now.date().isoformat()
    return oq1.count_jobs(keys, day=day, counts=[oq1.DayCount(field, by) for field, by in tally.take()])


def statistics(keys: QueueKeys, day: date) -> Operation[DayStatistics]:
    """Read the statistics of a day; empty for a day without jobs, and after 30 days."""
    call = Call("HGETALL", (keys.statistics(day.isoformat()),))
    return Operation(call, lambda reply: read_day(day, pairs(reply).items()))
