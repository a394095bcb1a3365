"""Times of the console: two that charts compare, and one whose jobs are listed."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import httpx
import pytest
import redis

from orchestration_queue import AsyncQueue
from orchestration_queue.http import create_app
from orchestration_queue.protocol import statistics
from orchestration_queue.protocol.statistics import Tally
from tests.http.conftest import called
from tests.http.test_console import HOSTILE, page, submit
from tests.http.test_rates import put_minutes

DAY_S = 86_400


@pytest.fixture
async def ui(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    async with called(create_app(server_url, console=True)) as client:
        yield client


@pytest.fixture
async def queue(server_url: str, raw: redis.Redis, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def count(queue: AsyncQueue, back: int, task: str, jobs: int, kind: str = "") -> None:
    """Write what a worker counts of one day."""
    tally = Tally()
    counts = tally.task(task)
    for _ in range(jobs):
        if kind:
            counts.fail(kind)
        else:
            counts.run.add(2000 * (back + 1))
    at_ms = round(1000 * (time.time() - back * DAY_S))
    await queue._connection.execute(statistics.count(queue.keys, at_ms, tally))


def table(text: str, label: str) -> list[list[str]]:
    """The cells of the table in a region."""
    found = re.search(rf'aria-label="{label}">.*?(<table.*?</table>)', text, re.DOTALL)
    assert found, label
    rows = re.findall(r"<tr.*?>(.*?)</tr>", found[1], re.DOTALL)
    return [
        [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows
    ]


async def test_a_day_is_compared_with_that_a_week_before(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    await count(queue, 0, "send", 3)
    await count(queue, 0, "send", 2, HOSTILE)
    await count(queue, 7, "send", 8)
    await count(queue, 7, "old", 1)
    path = f"/queues/{queue.name}/statistics"
    text = await page(ui, f"{path}?compare=week")
    days = table(text, "Jobs per day")
    assert days[0] == ["Day (UTC)", "completed", "failed", "completed, a week before", "failed, a week before"]
    assert len(days) == 1 + 23
    assert days[1][1:] == ["3", "2", "9", "0"]
    assert days[1][0] == f"{datetime.now(UTC):%a %d %b}"
    assert table(text, "Failures by kind, per day")[1][1:] == ["2", "0"]
    assert table(text, "Running time, per day")[0][4:] == [f"p{part}, a week before" for part in (50, 95, 99)]
    assert "stroke t-p99 before" in text
    assert "stroke t-before" in text
    tasks = table(text, "Tasks")
    assert [row[:4] for row in tasks[1:]] == [
        ["send", f"{datetime.now(UTC):%d %b}", "3", "2"],
        ["send", f"{datetime.now(UTC) - timedelta(days=7):%d %b}", "8", "0"],
        ["old", f"{datetime.now(UTC):%d %b}", "0", "0"],
        ["old", f"{datetime.now(UTC) - timedelta(days=7):%d %b}", "1", "0"],
    ]
    assert "<img" not in text
    plain = await page(ui, path)
    assert "before" not in re.sub(r"<(option|p) .*?</\1>", "", plain[plain.index('class="charts"') :])
    assert len(table(plain, "Jobs per day")) == 1 + 30
    refused = await ui.get(f"/ui{path}?compare=year")
    assert refused.status_code == 400
    assert "`compare` must be one of `before`, `week`" in refused.text
    assert (await ui.get(f"/ui{path}?compare=week&day=0001-01-01")).status_code == 200


async def test_an_hour_is_compared_with_the_one_before(
    ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    ago = {timedelta(minutes=5): 4, timedelta(minutes=65): 9, timedelta(hours=3): 7}
    put_minutes(raw, queue.keys.metrics_completed, ago)
    await count(queue, 20, "send", 1)
    text = await page(ui, f"/queues/{queue.name}/statistics?compare=before")
    rows = table(text, "Last hour")
    assert rows[0][1:] == ["completed", "failed", "completed, the time before", "failed, the time before"]
    assert [row[1:] for row in rows[1:] if row[1] != "0"] == [["4", "0", "9", "0"]]
    assert len(table(text, "Jobs per day")) == 1 + 15
    day = table(text, "Last 24 hours")
    assert len(day) == 1 + 96
    assert sum(int(row[1]) for row in day[1:]) == 20
    begin, step = re.findall(r'data-begin="(\d+)" data-step="(\d+)"', text)[0]
    assert step == "60"
    assert int(begin) == pytest.approx(time.time() - 3600, abs=120)


async def test_the_jobs_of_a_time_are_listed_searched_and_changed(
    ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    start = datetime(2026, 10, 1, 12, tzinfo=UTC)
    for hour in range(6):
        name = "send" if hour % 2 else HOSTILE
        job = await queue.add(name, {"hour": hour}, {"job_id": f"h{hour}"})
        await job.cancel()
        raw.zadd(queue.keys.failed, {job.id: (start + timedelta(hours=hour)).timestamp() * 1000})
    base = f"/queues/{queue.name}"

    async def listed(**asked: str) -> list[str]:
        text = await page(ui, f"{base}?{urlencode({'state': 'failed'} | asked)}")
        assert "<img" not in text
        return re.findall(r'aria-label="Select job (\w+)"', text)

    span = {"from": "2026-10-01T13:00", "to": "2026-10-01T16:00"}
    assert await listed(**span) == ["h3", "h2", "h1"]
    assert await listed(**{"from": "2026-10-01T18:00+02:00"}) == ["h5", "h4"]
    assert await listed(**span, q="send") == ["h3", "h1"]
    assert await listed(**span, data='{"hour": 2}') == ["h2"]
    assert await listed(**span, kind="cancelled", q="h2") == []  # an id is found without a time
    text = await page(ui, f"{base}?state=failed&{urlencode(span)}")
    assert 'name="from" value="2026-10-01T13:00"' in text
    asked = await submit(ui, f"{base}/jobs", "remove", found="yes", state="failed", **span)
    assert "Failed jobs that ended from 2026-10-01 13:00:00 UTC and before 2026-10-01 16:00:00 UTC." in asked.text
    assert re.findall(r'name="id" value="(\w+)"', asked.text) == ["h3", "h2", "h1"]
    for wrong, why in (
        ({"from": "noon"}, "must be a time"),
        ({"from": "2026-10-01", "state": "active"}, "Only completed"),
    ):
        refused = await ui.get(f"/ui{base}?{urlencode({'state': 'failed'} | wrong)}")
        assert (refused.status_code, why in refused.text) == (400, True), refused.text
    found = await ui.get(f"/v1/queues/{queue.name}/search?state=failed&since=2026-10-01T16:00&until=2026-10-01T17:00")
    assert [job["id"] for job in found.json()["jobs"]] == ["h4"]
    assert (await ui.get(f"/v1/queues/{queue.name}/search?state=failed&since=soon")).status_code == 400
