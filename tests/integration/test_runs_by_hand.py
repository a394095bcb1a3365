"""Manual runs, and those that are coming: what clients start and predict, beside the workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import InvalidOptionError, PayloadError, ScheduleError, StateError, UsageError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.schedules import (
    Cron,
    Every,
    FlowTemplate,
    JobTemplate,
    RepeatAfterComplete,
    Schedule,
    flow_id_of,
)
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import working

TEMPLATE = JobTemplate(name="load", data={"day": 1}, options=JobOptions(attempts=3, priority=7))


@pytest.fixture
def keys(queue_name: str, raw: Any) -> QueueKeys:
    return QueueKeys(queue_name)


@pytest.fixture
def untouched(raw: Any, keys: QueueKeys) -> Iterator[None]:
    """Nothing but the entries, and the signal that they changed, may be there in the end."""
    yield
    assert {str(key) for key in raw.scan_iter("*")} <= {keys.schedulers, keys.schedulers_due, keys.wake}


async def test_a_run_by_hand_makes_the_template_and_counts_for_nothing(
    face: Face, queue_name: str, raw: Any, keys: QueueKeys
) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("nightly", Cron("30 2 * * *", tz="Europe/Berlin", limit=2), TEMPLATE)
        before = raw.hget(keys.schedulers, "nightly")
        earliest_ms = int(time.time() * 1000)
        job = await schedulers.run_now("nightly")
        assert job is not None
        _, name, at = job.id.split(".")
        assert (name, at.endswith("-now")) == ("nightly", True)
        assert earliest_ms <= int(at.removesuffix("-now")) <= time.time() * 1000
        assert (job.record.name, job.record.data, job.record.state) == ("load", {"day": 1}, "prioritized")
        assert (await job.refresh()).max_attempts == 3
        assert raw.hget(keys.schedulers, "nightly") == before
        (past,) = await schedulers.history("nightly")
        assert (past.job_id, past.outcome, past.due_ms) == (job.id, "fired", past.at_ms)
    assert not raw.exists(keys.schedulers_lock)


async def test_runs_by_hand_of_one_moment_are_jobs_of_their_own(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("often", Every(60))
        jobs = await asyncio.gather(*(schedulers.run_now("often") for _ in range(10)))
        assert len({job.id for job in jobs if job is not None}) == 10


@pytest.mark.parametrize("schedule", [Every(60), Every(60, overlap="replace"), RepeatAfterComplete(60)])
async def test_a_run_by_hand_that_is_asked_for_again_is_the_same(
    face: Face, queue_name: str, raw: Any, keys: QueueKeys, schedule: Any
) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("often", schedule)
        first = await schedulers.run_now("often", at=at)
        again = await schedulers.run_now("often", at=at)
        assert first is not None
        assert (first.id, first.is_new) == (f"repeat.often.{int(at.timestamp() * 1000)}-now", True)
        assert again is not None
        assert (again.id, again.is_new) == (first.id, False)
        assert raw.keys(f"{keys.base}:job:*") == [keys.job(first.id)]
        if not isinstance(schedule, RepeatAfterComplete):
            await schedulers.run_now("often", at=at + timedelta(seconds=1))
        before = raw.hget(keys.schedulers, "often")
        late = await schedulers.run_now("often", at=at)
        assert (late and late.id) == first.id
        assert raw.hget(keys.schedulers, "often") == before, "the schedule has continued, and is unchanged"
        with pytest.raises(UsageError, match="must be a datetime with a time zone"):
            await schedulers.run_now("often", at=datetime(2026, 3, 1))  # noqa: DTZ001  that is the point


async def test_a_paused_schedule_runs_by_hand_and_stays_paused(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        planned = (await schedulers.upsert("often", Every(60, overlap="skip"))).next_run
        await schedulers.pause("often")
        assert await schedulers.run_now("often") is not None
        entry = await schedulers.get("often")
        assert entry is not None
        assert (entry.is_paused, entry.next_run, entry.members["nextRun"]) == (True, planned, 0)


@pytest.mark.parametrize(
    ("overlap", "outcomes", "makes"),
    [
        ("allow", ["fired", "fired"], 2),
        ("skip", ["overlap", "fired"], 1),
        ("queue_one", ["queued", "fired"], 1),
        ("replace", ["fired", "fired"], 2),
    ],
)
async def test_the_overlap_policy_holds_for_runs_by_hand(
    face: Face, queue_name: str, raw: Any, keys: QueueKeys, overlap: Any, outcomes: list[str], makes: int
) -> None:
    async with face.schedulers(queue_name) as schedulers:
        planned = (await schedulers.upsert("often", Every(60, overlap=overlap))).next_run
        first, second = await schedulers.run_now("often"), await schedulers.run_now("often")
        assert first is not None
        assert (second is not None) == (makes == 2)
        assert [past.outcome for past in await schedulers.history("often")] == outcomes
        entry = await schedulers.get("often")
        assert entry is not None
        assert (entry.next_run, entry.iteration_count) == (planned, 0)
        assert bool(entry.queued) == (overlap == "queue_one")
        assert raw.hexists(keys.job(first.id), "failedReason") == (overlap == "replace"), "what is replaced is revoked"


async def test_a_queued_run_by_hand_follows_the_job_before(server_url: str, queue_name: str, raw: Any) -> None:
    done: list[str] = []

    async def work(job: AsyncActiveJob) -> None:
        done.append(job.id)

    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.schedulers.upsert("often", Every(3600, overlap="queue_one"))
        first = await queue.schedulers.run_now("often")
        assert first is not None
        assert await queue.schedulers.run_now("often") is None
        async with working(queue, work, server_url):
            await wait_until(lambda: len(done) == 2, "both runs")
    assert done[0] == first.id
    assert done[1].startswith("repeat.often.")


async def test_repeat_after_complete_runs_earlier_and_not_twice_at_a_time(
    face: Face, queue_name: str, raw: Any, keys: QueueKeys
) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("chain", RepeatAfterComplete(60, start=datetime(2100, 1, 1, tzinfo=UTC)))
        job = await schedulers.run_now("chain")
        assert job is not None
        assert raw.hget(keys.job(job.id), "schedulerName") == "chain"
        assert await schedulers.run_now("chain") is None
        assert await schedulers.next_runs("chain") == []
        assert raw.zscore(keys.schedulers_due, "chain") < time.time() * 1000 + 60_000, "a lost end will be noticed"


async def test_a_flow_template_is_submitted_by_hand(server_url: str, queue_name: str, raw: Any) -> None:
    done: list[str] = []

    async def work(job: AsyncActiveJob) -> None:
        done.append(job.name)

    async with AsyncQueue(queue_name, url=server_url) as queue:
        dag = Dag("etl", [Node("load"), Node("report", deps=("load",))], queue_name)
        await queue.schedulers.upsert("nightly", Cron("0 3 * * *"), FlowTemplate(dag))
        job = await queue.schedulers.run_now("nightly")
        assert job is not None
        async with working(queue, work, server_url):
            await wait_until(lambda: len(done) == 2, "both nodes")
            flow = await queue.flows.get(flow_id_of(job.id))
            await flow.wait()
    assert done == ["load", "report"]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("verb", ["run_now", "next_runs"])
async def test_a_scheduler_that_is_not_there_can_neither_run_nor_be_foreseen(
    face: Face, queue_name: str, raw: Any, keys: QueueKeys, verb: str
) -> None:
    raw.hset(keys.schedulers, "broken", "{")
    async with face.schedulers(queue_name) as schedulers:
        for name in ("x", "broken"):
            with pytest.raises(
                StateError, match=r"has no scheduler '.*' that can be read; list its schedulers with list\(\) or `oq"
            ):
                await getattr(schedulers, verb)(name)


@pytest.mark.usefixtures("untouched")
async def test_data_that_no_job_can_carry_are_told(face: Face, queue_name: str, raw: Any, keys: QueueKeys) -> None:
    raw.hset(keys.schedulers, "big", json.dumps({"every": 9, "nextRun": 1, "template": {"data": "x" * 1_048_577}}))
    async with face.schedulers(queue_name) as schedulers:
        with pytest.raises(PayloadError, match="exceeds maximum size"):
            await schedulers.run_now("big")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("count", [0, -1, 1001, True, 1.5, "3", None])
async def test_a_count_that_is_none_is_refused(face: Face, queue_name: str, raw: Any, count: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("often", Every(60))
        with pytest.raises(InvalidOptionError, match=r"`count` must be a whole number from 1 to 1,000, got .*; pass"):
            await schedulers.next_runs("often", count)


BERLIN = ZoneInfo("Europe/Berlin")


async def test_runs_to_come_are_told_by_the_clock_of_the_zone(face: Face, queue_name: str, raw: Any) -> None:
    async with face.schedulers(queue_name) as schedulers:
        start = datetime(2124, 3, 25, tzinfo=UTC)
        await schedulers.upsert("nightly", Cron("30 2 * * *", tz="Europe/Berlin", start=start))
        runs = await schedulers.next_runs("nightly", 3)
        assert [run.isoformat() for run in runs] == [
            "2124-03-25T02:30:00+01:00",
            "2124-03-27T02:30:00+02:00",  # on the 26th the clock leaves it out
            "2124-03-28T02:30:00+02:00",
        ]
        assert {run.tzinfo for run in runs} == {BERLIN}
        assert len(await schedulers.next_runs("nightly")) == 10


DAY = timedelta(days=1)
SOON = datetime.now(UTC).replace(microsecond=0) + DAY

FORESEEN: list[tuple[str, Schedule, list[datetime]]] = [
    ("every", Every(3600, start=SOON), [SOON + hour * timedelta(hours=1) for hour in range(5)]),
    ("an end", Every(3600, start=SOON, end=SOON + timedelta(hours=1)), [SOON, SOON + timedelta(hours=1)]),
    ("a limit", Every(3600, start=SOON, limit=1), [SOON]),
    ("a pause between jobs", RepeatAfterComplete(3600, start=SOON), [SOON]),
    ("jitter", Every(DAY, start=SOON, end=SOON + DAY, jitter=timedelta(hours=1)), [SOON, SOON + DAY]),
    ("the calendar's end", Every(timedelta(days=2_900_000), start=SOON), [SOON, SOON + timedelta(days=2_900_000)]),
]


@pytest.mark.parametrize(("schedule", "runs"), [row[1:] for row in FORESEEN], ids=[row[0] for row in FORESEEN])
async def test_runs_to_come_end_with_the_schedule(
    face: Face, queue_name: str, raw: Any, schedule: Schedule, runs: list[datetime]
) -> None:
    async with face.schedulers(queue_name) as schedulers:
        await schedulers.upsert("s", schedule)
        assert await schedulers.next_runs("s", 5) == runs
        await schedulers.pause("s")
        assert await schedulers.next_runs("s", 5) == []


async def test_a_run_that_is_due_comes_first_and_those_that_were_missed_do_not_come(
    face: Face, queue_name: str, raw: Any, keys: QueueKeys
) -> None:
    now_ms = int(time.time() * 1000)
    missed_ms = now_ms - 10 * 3_600_000 - 60_000
    raw.hset(keys.schedulers, "late", json.dumps({"every": 3_600_000, "nextRun": missed_ms, "iterationCount": 0}))
    async with face.schedulers(queue_name) as schedulers:
        runs = await schedulers.next_runs("late", 3)
        assert [round(run.timestamp() * 1000) - missed_ms for run in runs] == [0, 11 * 3_600_000, 12 * 3_600_000]


@pytest.mark.usefixtures("untouched")
async def test_runs_in_a_zone_that_is_not_known_here_cannot_be_foreseen(
    face: Face, queue_name: str, raw: Any, keys: QueueKeys
) -> None:
    raw.hset(keys.schedulers, "far", json.dumps({"pattern": "0 0 * * *", "tz": "Mars/Base", "nextRun": 2**42}))
    async with face.schedulers(queue_name) as schedulers:
        with pytest.raises(ScheduleError, match="Invalid timezone 'Mars/Base'"):
            await schedulers.next_runs("far")
