"""The replayed day leaves what a day leaves, and the console's pages show its three incidents."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from html import unescape

import httpx
import pytest

from orchestration_queue import AsyncQueue
from orchestration_queue.client import AsyncAlerts
from orchestration_queue.http import create_app
from orchestration_queue.http.console import cache, overview, pages
from orchestration_queue.states import JobState
from tests.console import life
from tests.console.day import Day, replayed
from tests.http.conftest import called

pytestmark = pytest.mark.timeout(600)  # the first test replays the day


@pytest.fixture(scope="module")
def day() -> Iterator[Day]:
    pytest.importorskip("libfaketime", reason="libfaketime is not installed (make installs it)")
    with asyncio.Runner() as runner:
        replaying = replayed(scale=0.15)
        yield runner.run(replaying.__aenter__())
        runner.run(replaying.__aexit__(None, None, None))


@pytest.fixture
async def site(day: Day, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    for module in (overview, pages, cache):
        monkeypatch.setattr(module, "PATIENCE_S", 60)
    async with called(create_app(day.url, console=True)) as client:
        yield client


async def read(site: httpx.AsyncClient, path: str) -> str:
    """The words of a page, with single spaces."""
    reply = await site.get(path)
    assert reply.status_code == 200, path
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", reply.text)))


async def test_every_job_has_ended_at_a_time_of_the_day(day: Day) -> None:
    for name in {staff.queue for staff in life.TEAM}:
        async with AsyncQueue(name, url=day.url) as queue:
            counts = await queue.counts()
            assert (counts.waiting, counts.active, counts.delayed, counts.suspended) == (0, 0, 0, 0), name
            assert counts.completed > 100
            for job in await queue.jobs(JobState.COMPLETED, limit=1000):
                times = [job.record.added_at, job.record.started_at, job.record.finished_at]
                known = [at for at in times if at is not None]
                assert known == sorted(known)
                assert len(known) == 3
                assert life.START <= known[0] <= known[-1] <= life.END


async def test_counts_by_minute_and_by_day_agree_with_the_jobs(day: Day) -> None:
    async with AsyncQueue("emails", url=day.url) as queue:
        counts = await queue.counts()
        days = [await queue.statistics(at.date()) for at in (life.START, life.END)]
        assert sum(each.all.completed for each in days) == counts.completed
        assert sum(each.all.failed for each in days) == counts.failed
        minutes = await queue.metrics("failed", start=life.START, end=life.END)
        assert minutes.count == counts.failed
        assert (await queue.statistics(life.START.date().replace(day=14))).all.completed > 30


async def test_failures_changed_their_kind_at_noon(day: Day, site: httpx.AsyncClient) -> None:
    async with AsyncQueue("emails", url=day.url) as queue:
        refused = await queue.search(state="failed", kind="ConnectionRefusedError", limit=1000)
        assert refused
        assert min(job.record.finished_at for job in refused if job.record.finished_at) > life.NOON
    page = await read(site, "/ui/queues/emails/statistics?day=2026-03-28")
    assert "ConnectionRefusedError" in page
    assert "mailbox full" in page
    job = await read(site, f"/ui/queues/emails/jobs/{refused[0].id}")
    assert "smtp-2.example.org:587" in job
    assert job.count("/app/tasks.py") >= 3, "each attempt has its traceback"
    assert "ConnectionRefusedError" in await read(site, "/ui/dead")


async def test_the_lost_machine_left_its_jobs_to_others_and_no_worker_to_exports(
    day: Day, site: httpx.AsyncClient
) -> None:
    async with AsyncQueue("reports", url=day.url) as queue:
        stalled = [job for job in await queue.jobs(JobState.COMPLETED, limit=1000) if job.record.stalled_count]
        assert len(stalled) == 2
        assert [worker.id for worker in await queue.workers()] == ["reports-1"]
    page = await read(site, f"/ui/queues/reports/jobs/{stalled[0].id}")
    assert "stalled once" in page
    assert re.search(r"its worker was lost .*, on reports-2", page)
    calendar = await read(site, "/ui/schedules/calendar?zone=Europe/Berlin")
    assert re.search(r"04:15:00 \+0200 partner-feed exports late", calendar)


async def test_the_night_without_half_past_two(day: Day, site: httpx.AsyncClient) -> None:
    async with AsyncQueue("etl", url=day.url) as queue:
        failed = [flow.id for flow in await queue.flows.list(limit=100) if flow.state == "failed"]
        assert len(failed) == 3
        nodes = {node.name: node for node in await (await queue.flows.get(failed[0])).tree()}
    took = nodes["read-export"].seconds
    assert took is not None
    assert took > 5, "the wire overwrites when a failed attempt began, and its history has it"
    runs = await read(site, "/ui/queues/etl/runs?flow=catalog")
    assert "newly failing" in runs
    schedule = await read(site, "/ui/queues/exports/schedulers/nightly-export")
    assert "Mon 2026-03-30 02:30" in schedule
    assert "clocks in Europe/Berlin went forward by 1 h to 03:00. It had no run at a time that is skipped." in schedule
    calendar = await read(site, "/ui/schedules/calendar")
    assert "Without a run at a time that is skipped: nightly-export" in calendar


async def test_alerts_fired_and_were_resolved_in_the_order_of_the_day(day: Day, site: httpx.AsyncClient) -> None:
    async with AsyncAlerts(url=day.url) as alerts:
        events = await alerts.history(limit=1000)
        states = {(each.rule, each.event) for each in events if each.event != "sent"}
        assert {("exports-worker", "firing"), ("exports-worker", "resolved"), ("etl-failures", "firing")} <= states
        assert ("etl-failures", "resolved") not in states
        firing = next(each for each in events if each.rule == "exports-worker" and each.event == "firing")
        assert firing.at is not None
        assert life.LOST < firing.at < life.END
        assert [each.name for each in await alerts.list() if each.state == "firing"] == ["etl-failures"]
    assert "1 alert fires Alerts etl-failures etl-dead: 3 dead letters are stored there" in await read(site, "/ui")
    page = await read(site, "/ui/alerts")
    assert "03-29 02:14:00" in page
    assert "exports: No worker serves the queue" in page
    assert page.count("exports-worker") > 3
    assert len(day.received) >= 6
