"""The timeline of a job: attempts, waits, steps, signals, moves and takeovers in their places."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from orchestration_queue import AsyncActiveJob, AsyncQueue
from orchestration_queue.http import create_app
from orchestration_queue.http.console.timeline import Timeline, draw_timeline
from orchestration_queue.protocol.operations.steps import JobStep, StepKind
from orchestration_queue.protocol.record import JobRecord
from tests.http.conftest import called
from tests.http.test_console import HOSTILE, page
from tests.http.test_times import table
from tests.waiting import wait_until
from tests.workers import working

START = datetime(2026, 1, 31, 6, tzinfo=UTC)


def ms(seconds: float) -> str:
    return str(round(1000 * (START.timestamp() + seconds)))


def entry(event: str, ended: float, **more: Any) -> dict[str, Any]:
    return {"event": event, "ended": int(ms(ended)), **more}


def drawn(fields: Mapping[str, str], *history: dict[str, Any], steps: tuple[JobStep, ...] = ()) -> Timeline:
    record = JobRecord("1", {"timestamp": ms(0), "history": json.dumps(history), **fields})
    found = draw_timeline(record, steps, START + timedelta(seconds=100))
    assert found
    return found


def told(timeline: Timeline, lane: str = "Attempts") -> list[tuple[str, float | None]]:
    """What is in a lane, and how many seconds it took."""
    place = timeline.lanes.index(lane)
    return [(each.what, each.seconds) for at, _, _, each in timeline.spans if at == place]


def test_attempts_and_the_waits_around_them() -> None:
    failed = entry("failed", 30, attempt=1, started=int(ms(20)), host="host-1", reason="no\nstack")
    lost = entry("stalled", 60, attempt=2, started=int(ms(40)))
    timeline = drawn(
        {"state": "completed", "processedOn": ms(70), "finishedOn": ms(80), "attemptsMade": "1"}, failed, lost
    )
    assert told(timeline) == [
        ("waited", 20),
        ("attempt 1 failed", 10),
        ("waited", 10),
        ("attempt 2 was lost with its worker", 20),
        ("waited", 10),
        ("attempt 2 completed", 10),
    ]
    assert [(x, width) for lane, x, width, _ in timeline.spans if lane == 0] == [
        (0, 25), (25, 12.5), (37.5, 12.5), (50, 25), (75, 12.5), (87.5, 12.5),
    ]  # fmt: skip
    first = next(each for each in timeline.entries if each.what == "attempt 1 failed")
    assert (first.where, first.detail, first.tone) == ("host-1", "no", "failed")
    assert timeline.seconds == 80


def test_what_is_not_over_ends_now() -> None:
    assert told(drawn({"state": "waiting"})) == [("waits", 100)]
    assert told(drawn({"state": "active", "processedOn": ms(40)})) == [("waited", 40), ("attempt 1 runs", 60)]
    failed = entry("failed", 30, attempt=1, started=int(ms(20)))
    assert told(drawn({"state": "delayed", "processedOn": ms(20)}, failed))[-1] == ("waits until it is due", 70)
    cancelled = drawn({"state": "failed", "finishedOn": ms(50)}, entry("cancelled", 50))
    assert told(cancelled) == [("waited, and never started", 50)]
    assert told(cancelled, "Events") == [("added", None), ("cancelled", None)]


def test_steps_signals_and_moves_have_their_lanes() -> None:
    charge = JobStep("charge", StepKind.RETURNED, 1, 1, START + timedelta(seconds=50), timedelta(seconds=5), None, 2)
    sleep = JobStep(
        "pause", StepKind.SLEEPS, 2, 1, START + timedelta(seconds=50), timedelta(0), START + timedelta(days=1), 0
    )
    signals = json.dumps([{"name": HOSTILE, "receivedAt": int(ms(60))}])
    fields = {"state": "suspended", "processedOn": ms(40), "suspendedAt": ms(55), "signals": signals}
    moved = entry("moved", 10, reason="slow")
    timeline = drawn(fields, moved, steps=(charge, sleep))
    assert timeline.lanes == ["Attempts", "Steps", "Events"]
    assert told(timeline) == [("waited", 40), ("attempt 1 ran until it waited", 15), ("waits for a signal", 45)]
    assert told(timeline, "Steps") == [("charge", 5), ("pause", 50)]
    assert [what for what, _ in told(timeline, "Events")] == [
        "added", "moved from another queue", "suspended", f"signal {HOSTILE}",
    ]  # fmt: skip


def test_clocks_that_disagree_and_damaged_records_are_drawn() -> None:
    timeline = drawn(
        {"state": "completed", "processedOn": ms(-5), "finishedOn": ms(-9), "signals": "nonsense"},
        entry("failed", -20, attempt=1, started=int(ms(-10))),
    )
    assert all(0 <= x <= 100 and 0 <= width <= 100 - x for _, x, width, _ in timeline.spans)
    assert draw_timeline(JobRecord("1", {}), (), START) is None


async def test_the_page_of_a_job_shows_its_timeline(server_url: str, raw: redis.Redis, queue_name: str) -> None:
    async def handle(job: AsyncActiveJob) -> None:
        await job.step(HOSTILE, lambda: 5)
        if job.record.attempts_made == 0:
            raise ValueError(HOSTILE)
        await job.wait_for("approved")

    async with (
        AsyncQueue(f"{queue_name}-slow", url=server_url) as slow,
        AsyncQueue(queue_name, url=server_url) as queue,
        called(create_app(server_url, console=True)) as ui,
    ):
        job = await slow.add("pay", None, {"job_id": "pay", "delay": 9999, "attempts": 2})
        await job.move(queue.name)
        moved = await queue.get("pay")
        await moved.promote()
        async with working(queue, handle, server_url):
            await wait_until(lambda: raw.hget(queue.keys.job("pay"), "state") == "suspended", "it to wait")
            await (await queue.get("pay")).signal("approved")
            await (await queue.get("pay")).wait(30)
        text = await page(ui, f"/queues/{queue.name}/jobs/pay")
    rows = [row[1] for row in table(text, "Timeline")[1:]]
    assert {"added", "moved from another queue", "attempt 1 failed", "attempt 2 completed"} <= set(rows)
    assert {"approved", "signal approved"} & set(rows)
    assert sum("waited" in row for row in rows) >= 2
    svg = re.findall(r'<svg class="area timeline".*?</svg>', text, re.DOTALL)[0]
    assert svg.count("<rect") == len(rows)
    assert "<img" not in text
