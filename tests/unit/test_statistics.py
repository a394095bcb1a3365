"""The arithmetic of a day's statistics: counts that any number of workers add up, and what is read off them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from statistics import mean, stdev
from typing import cast

import pytest

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Failure, Lease
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.protocol.statistics import DayStatistics, Distribution, Tally, count, read_day
from orchestration_queue.server.clock import ServerClock
from orchestration_queue.worker.events import Tallying
from orchestration_queue.worker.queue_io import QueueIO

DAY = datetime(2026, 1, 31, tzinfo=UTC).date()


def read(*tallies: Tally) -> DayStatistics:
    """What is read after some workers sent what they counted."""
    stored: Counter[str] = Counter()
    for tally in tallies:
        for name, by in tally.take():
            stored[name] += float(by)  # type: ignore[assignment]  # as HINCRBYFLOAT adds
    return read_day(DAY, [(name, f"{number:.17g}") for name, number in stored.items()])


@pytest.mark.parametrize("longest_ms", [1, 40, 60_000, 90_000_000])
def test_mean_deviation_and_quantiles_are_those_of_the_durations(longest_ms: int) -> None:
    chance = random.Random(longest_ms)
    durations = sorted(chance.randint(0, longest_ms) for _ in range(3000))
    tallies = [Tally(), Tally()]
    for place, duration in enumerate(durations):
        tallies[place % 2].task("load").run.add(duration)
    run = read(*tallies).all.run
    assert run.count == 3000
    assert run.mean.total_seconds() == pytest.approx(mean(durations) / 1000, abs=1e-5)
    assert run.deviation.total_seconds() == pytest.approx(stdev(durations) / 1000, rel=1e-3, abs=1e-3)
    for part in (0.5, 0.9, 0.99):
        exact = durations[int(part * 3000)] / 1000
        assert run.quantile(part).total_seconds() == pytest.approx(exact, rel=0.2, abs=0.002)
    assert sum(count for _, count in run.histogram) == 3000
    assert (run.p50, run.p90, run.p95, run.p99) == tuple(map(run.quantile, (0.5, 0.9, 0.95, 0.99)))


def test_tasks_are_counted_apart_and_together() -> None:
    tally = Tally()
    tally.task("a:b").wait.add(5)
    tally.task("a:b").run.add(7)
    tally.task("").retried += 1
    tally.task("").fail("builtins.ValueError")
    found = read(tally)
    assert not tally
    assert list(found.tasks) == ["", "a:b"]
    assert (found.tasks["a:b"].wait.count, found.tasks["a:b"].completed, found.tasks[""].failed) == (1, 1, 1)
    assert (found.all.completed, found.all.failed, found.all.retried) == (1, 1, 1)
    assert found.tasks["a:b"].kinds == {}
    assert found.all.kinds == {"builtins.ValueError": 1}


def test_failures_are_counted_by_kind_over_tasks_and_workers() -> None:
    tallies = [Tally(), Tally()]
    for tally in tallies:
        tally.task("a").fail("a:b.\udcff")
        tally.task("b").fail("a:b.\udcff")
        tally.task("b").fail("")
    found = read(*tallies)
    assert found.tasks["a"].kinds == {"a.b.?": 2}
    assert found.all.kinds == {"a.b.?": 4, "(others)": 2}
    assert found.all.failed == 6


def test_made_up_kinds_are_bounded() -> None:
    tally = Tally()
    for number in range(1000):
        tally.task("a").fail(f"{number:x>300}")
    found = read(tally).all
    assert len(found.kinds) <= 21
    assert max(map(len, found.kinds)) <= 100
    assert sum(found.kinds.values()) == found.failed == 1000


def test_made_up_names_are_bounded() -> None:
    tally = Tally()
    for number in range(1000):
        tally.task(f"{number:x>300}").fail("error")
    found = read(tally)
    assert len(found.tasks) <= 101
    assert max(map(len, found.tasks)) <= 100
    assert found.all.failed == 1000


def test_a_damaged_record_is_counted_like_any_other() -> None:
    fields = {"name": "a\udcff", "timestamp": "9" * 5000, "delay": "\u00b2", "processedOn": "5", "state": "active"}
    sent: list[DayStatistics] = []

    class Server:
        queue, clock = "q", ServerClock()

        async def count(self, tally: Tally) -> None:
            sent.append(read(tally))

    async def count_one() -> None:
        tallying = Tallying(cast("QueueIO", Server()), lambda work: work.close())
        lease = Lease(JobRecord("1", fields), "")
        tallying.count(Failure(lease, "malformed"), Verdict.FAILED)
        tallying.count(Failure(lease, "malformed"), Verdict.LOST)
        await tallying.send()
        await tallying.send()

    asyncio.run(count_one())
    (found,) = sent
    assert list(found.tasks) == ["a?"]
    assert (found.all.failed, found.all.wait.count) == (1, 1)


def test_a_day_without_jobs_and_with_strange_fields_is_read() -> None:
    empty = read_day(DAY, [])
    assert (empty.day, empty.all.completed, empty.all.run.p99, empty.all.run.mean) == (DAY, 0, *[timedelta(0)] * 2)
    assert empty.all.run.deviation == timedelta(0)
    odd = read_day(DAY, [("run:n:a", "soon"), ("x", "1"), ("run", "2"), ("run:n:b", "3"), ("run:x:b", "1")])
    assert odd.tasks["b"].run == Distribution(3)
    assert odd.all.run.p50 == timedelta(0)


@pytest.mark.parametrize(("durations_ms", "deviation_s"), [([1000], 0), ([1000, 3000], 2**0.5), ([1, 1, 4000], 2.309)])
def test_the_deviation_is_that_of_a_sample(durations_ms: list[int], deviation_s: float) -> None:
    tally = Tally()
    for duration in durations_ms:
        tally.task("load").run.add(duration)
    assert read(tally).all.run.deviation.total_seconds() == pytest.approx(deviation_s, abs=0.001)


def test_a_quantile_is_the_end_of_the_bucket_that_it_fills() -> None:
    run = Distribution(2, buckets={0: 1, 40: 1})
    assert (run.quantile(0.5), run.quantile(1)) == (timedelta(milliseconds=1), timedelta(milliseconds=1024))


def test_a_name_that_is_counted_already_is_not_counted_as_another() -> None:
    tally = Tally()
    for number in range(100):
        tally.task(f"{number:x>100}").failed += 1
    tally.task(f"{0:x>100} and more").failed += 1
    tally.task("new").failed += 1
    tally.task("newer").failed += 1
    found = read(tally)
    assert found.tasks[f"{0:x>100}"].failed == 2
    assert found.tasks["(others)"].failed == 2
    assert len(found.tasks) == 101


def test_counts_go_to_their_day() -> None:
    keys, tally = QueueKeys("q"), Tally()
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    call = count(keys, int(noon.timestamp() * 1000), tally)
    assert any("2026-01-31" in str(word) for word in call.words)
