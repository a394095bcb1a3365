"""Jobs per minute in and out, from two reads of a queue; and the last hour's and day's jobs in the overview."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from orchestration_queue import AsyncQueue
from orchestration_queue.http import create_app
from orchestration_queue.http.console.cache import Rates
from orchestration_queue.protocol.call import Call
from orchestration_queue.server.instrumentation import exchange_hooks
from tests.http.conftest import called

MINUTE = 60.0 * 1_000_000
"""The beginning of some minute."""


def ended(*last: int) -> list[int]:
    return [0] * (60 - len(last)) + list(last)


def test_what_came_is_what_ended_and_what_is_there_more() -> None:
    rates = Rates()
    first = rates.look("q", MINUTE + 50, 10, ended(60, 60, 60, 60, 60, 7))
    assert (first.added, first.ended) == (None, 60)
    rate = rates.look("q", MINUTE + 80, 30, ended(60, 60, 60, 60, 60, 17, 5))
    assert rate.added == pytest.approx((20 + 10 + 5) * 2)
    assert rate.ended == pytest.approx(15 * 2)


def test_rates_are_of_the_last_minutes_and_never_negative() -> None:
    rates = Rates()
    for minute in range(20):  # one job each minute, then none, and removals
        added = min(minute, 10)
        rate = rates.look("q", MINUTE + 60 * minute, 100 + added, ended())
    assert (rate.added, rate.ended) == (0, 0)
    assert rates.look("q", MINUTE + 60 * 20, 0, ended()).added == 0
    assert rates.look("q", MINUTE + 60 * 60, 500, ended()).added is None  # the last read is too old
    assert rates.look("other", MINUTE, 1, ended()).added is None


def test_looks_in_the_same_moment_tell_no_rate() -> None:
    rates = Rates()
    rates.look("q", MINUTE, 0, ended())
    assert rates.look("q", MINUTE + 0.1, 1000, ended()).added is None


def put_minutes(raw: redis.Redis, key: str, ago: dict[timedelta, int]) -> None:
    now = datetime.now(UTC)
    for since, count in ago.items():
        minute = int((now - since).timestamp()) // 60 * 60_000
        raw.hset(key, mapping={f"m:{minute}:c": count, f"m:{minute}:d": count})


async def test_the_overview_shows_a_day_and_reads_past_slots_once(
    server_url: str, raw: redis.Redis, queue_name: str
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.add("a")
        ago = {timedelta(minutes=1): 3, timedelta(hours=2): 5, timedelta(hours=23): 7, timedelta(hours=25): 1000}
        put_minutes(raw, queue.keys.metrics_completed, ago)
        put_minutes(raw, queue.keys.metrics_failed, {timedelta(hours=5): 4})
        async with called(create_app(server_url, console=True)) as ui:
            label = re.compile(r'aria-label="completed in the last 24 hours: (\d+), failed: (\d+)"')
            first = (await ui.get("/ui")).text
            assert label.findall(first) == [("15", "4")]
            hour = re.compile(r'aria-label="completed in the last hour: (\d+), failed: (\d+)"')
            assert hour.findall(first) == [("3", "0")]
            shown = first.partition('class="chart')[2]
            assert [len(re.findall("M", path)) for path in re.findall(r'<path[^>]* d="([^"]*)"', shown)] == [3, 1, 1]
            put_minutes(raw, queue.keys.metrics_completed, {timedelta(minutes=1): 10, timedelta(hours=3): 99})
            read: list[str | None] = []
            with exchanges_noted(lambda call: read.append(call.first_key) if call.name == "HMGET" else None):
                again = (await ui.get("/ui")).text
            assert label.findall(again) == [("22", "4")]  # the past is not read again
            assert hour.findall(again) == [("10", "0")]
            keys = queue.keys
            counters = {keys.metrics_completed, keys.metrics_failed}
            assert sorted(key for key in read if key in counters) == sorted(counters)


@contextmanager
def exchanges_noted(note: Callable[[Call], None]) -> Iterator[None]:
    """Tell of each call that a client of this process makes."""

    def tell(calls: Sequence[Call], _took: float, _failed: object) -> None:
        for call in calls:
            note(call)

    exchange_hooks.append(tell)
    try:
        yield
    finally:
        exchange_hooks.remove(tell)


async def test_pages_show_rates_in_and_out(server_url: str, raw: redis.Redis, queue_name: str) -> None:
    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        called(create_app(server_url, console=True)) as ui,
    ):
        await queue.add("a")
        began = time.monotonic()
        for path in ("/ui", f"/ui/queues/{queue_name}"):
            assert "\N{EN DASH}" in (await ui.get(path)).text

        async def shown() -> Any:
            await queue.add("b")
            text = (await ui.get(f"/ui/queues/{queue_name}")).text
            return re.search(r'<dt>In</dt><dd><span class="">([\d.\u202f]+)</span> per minute', text)

        while not (found := await shown()):
            assert time.monotonic() - began < 60
        assert float(found[1].replace("\u202f", "")) > 1
        in_, out = re.findall(r'<td class="num hide"><span class="(zero)?">', (await ui.get("/ui")).text)[-2:]
        assert (in_, out) == ("", "zero")


async def test_the_server_page_counts_keys_by_kind(server_url: str, raw: redis.Redis, queue_name: str) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        for _ in range(3):
            await queue.add("a")
    async with called(create_app(server_url, console=True)) as ui:
        shown = (await ui.get("/ui/server")).text  # the tests' pages wait for the count
    rows = dict(re.findall(r'<td class="mono">([^<]+)</td><td class="num">(\d+)</td>', shown))
    assert (rows["job:*"], rows["stream"], rows["events"]) == ("3", "1", "1")
