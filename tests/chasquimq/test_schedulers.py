"""Schedulers of both kinds on one queue, the lead passing between them: each window fires once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.wires.chasquimq import AsyncChasquiQueue
from orchestration_queue.wires.chasquimq.cron import parse_cron, parse_zone
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.original import their_worker
from tests.chasquimq.redis86 import redis86
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until

pytest.importorskip("chasquimq", reason="the original is not installed (make installs it)")

EVERY_MS = 100
SPECS = 10
CRON, ZONE = "30 1-3 * * *", "America/New_York"


async def test_each_window_fires_once_while_the_lead_passes(
    queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys, pytestconfig: pytest.Config
) -> None:
    windows = pytestconfig.getoption("--chasquimq-jobs") // 10
    fired: Counter[str] = Counter()
    leaders: Counter[str] = Counter()
    ran: set[str] = set()

    async def note(job: Any) -> None:
        assert job.id not in ran
        ran.add(job.id)
        fired[job.name] += 1

    with redis86(server_url.removeprefix("unix://")) as proxy:

        def worker(kind: str) -> AbstractAsyncContextManager[Any]:
            return working(queue.name, note, server_url) if kind == "ours" else their_worker(queue.name, note, proxy)

        options: Any = {"missed_fires": "fire_all", "max_catchup": 10_000}
        specs = [
            await queue.put_schedule(f"tick {n}", every=EVERY_MS / 1000, key=f"k{n}", **options) for n in range(SPECS)
        ]
        first = {key: int(server.zscore(keys.repeat, key)) for key in specs}
        while fired.total() < windows or min(leaders["ours"], leaders["theirs"]) < 2:
            for kind in ("ours", "theirs"):
                async with worker(kind):
                    await wait_until(lambda: server.exists(keys.scheduler_lock), "a leader")
                    before = fired.total()
                    leaders[kind] += 1
                    await wait_until(lambda before=before: fired.total() >= before + 2 * SPECS, "it to fire")  # type: ignore[misc]
        following = {key: int(server.zscore(keys.repeat, key)) for key in specs}
        for key in specs:
            await queue.remove_schedule(key)
        async with worker("ours"):
            await wait_until(lambda: is_settled(server, keys), "the last jobs to run")
    assert {f"tick {key[1:]}": (following[key] - first[key]) / EVERY_MS for key in specs} == dict(fired)


@pytest.mark.parametrize("kind", ["ours", "theirs"])
async def test_both_kinds_fire_once_in_each_window_of_a_year_with_its_clock_changes(
    kind: str, queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    """The time that clocks skip does not fire, the one that comes twice fires once."""
    options: Any = {"missed_fires": "fire_all", "max_catchup": 10_000}
    key = await queue.put_schedule("tick", cron=CRON, tz=ZONE, **options)
    cron, zone = parse_cron(CRON), parse_zone(ZONE)
    begin = int((datetime.now(UTC) - timedelta(days=370)).timestamp()) * 1000
    due = cron.next_after(begin, zone)
    assert due is not None
    server.zadd(keys.repeat, {key: due})
    ran: list[str] = []

    async def note(job: Any) -> None:
        ran.append(job.id)

    with redis86(server_url.removeprefix("unix://")) as proxy:
        worker = working(queue.name, note, server_url) if kind == "ours" else their_worker(queue.name, note, proxy)
        async with worker:
            await wait_until(lambda: server.zscore(keys.repeat, key) > due, "the year to be made up for")
            await wait_until(lambda: ran and is_settled(server, keys), "its jobs to run")
        following = int(server.zscore(keys.repeat, key))
    windows, at = 0, due
    while at < following:
        windows += 1
        after = cron.next_after(at, zone)
        assert after is not None
        at = after
    assert at == following
    assert len(ran) == len(set(ran)) == windows > 1000


@dataclass(frozen=True)
class ClockChange:
    """A clock change, and a clock that runs fast from shortly before.

    Attributes:
        at: When the clocks change.
        silent: How long no time of the pattern comes, of the hour that comes twice.
        cron: A pattern that is often due.
        every: How often.
        speed: How fast the processes' clock runs.
    """

    at: datetime
    silent: timedelta
    cron: str
    every: timedelta
    speed: int


@pytest.mark.parametrize(
    "change",
    [
        ClockChange(datetime(2026, 3, 8, 7, tzinfo=UTC), timedelta(0), "* * * * * *", timedelta(seconds=1), 20),
        ClockChange(datetime(2026, 11, 1, 6, tzinfo=UTC), timedelta(hours=1), "* * * * *", timedelta(minutes=1), 1800),
    ],
    ids=["spring", "autumn"],
)
def test_each_window_fires_once_while_the_lead_passes_over_a_clock_change(
    change: ClockChange, server: Any, server_url: str, keys: ChasquiKeys, pytestconfig: pytest.Config
) -> None:
    """Clocks that go forward skip no window of an instant; of the hour that comes twice, the second does not fire."""
    library = pytest.importorskip("libfaketime", reason="libfaketime is not installed (make installs it)")
    windows = max(24, pytestconfig.getoption("--chasquimq-jobs") // 10 // SPECS)
    first = change.at - windows // 2 * change.every
    until = change.at + change.silent + (windows - windows // 2) * change.every
    fast = {
        "LD_PRELOAD": str(Path(library.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"),
        "FAKETIME": f"@{first - 20 * change.every:%Y-%m-%d %H:%M:%S} x{change.speed}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "TZ": "UTC",
    }
    counts = SPECS, round(first.timestamp() * 1000), round(until.timestamp() * 1000)
    words = [server_url.removeprefix("unix://"), keys.queue, *map(str, counts), change.cron, ZONE]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chasquimq.clock_change", *words],
        env=os.environ | fast,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert min(Counter(told["leads"]).values()) >= 2
    due = {key: datetime.fromtimestamp(at / 1000, UTC) for key, at in told["due"].items()}
    expected = {key: (at - first - change.silent) // change.every for key, at in due.items()}
    assert (told["fired"], told["added"]) == (expected, sum(expected.values()))
    assert min(due.values()) >= until
