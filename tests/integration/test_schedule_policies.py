"""Late, overlapping, spread, paused and unfinished runs, with real workers and leaders."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.flows import Dag, Node
from orchestration_queue.protocol.operations import schedule_entries
from orchestration_queue.schedules import (
    Every,
    FlowTemplate,
    JobTemplate,
    MissedRuns,
    RepeatAfterComplete,
    Schedule,
    SchedulerEntry,
    flow_id_of,
)
from orchestration_queue.schedules.tick import CHECK_MS
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker import AsyncActiveJob
from orchestration_queue.worker.scheduler_leader import SchedulerLeader
from tests.waiting import wait_until
from tests.workers import working

MINUTE_MS = 60_000


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.fixture
async def connection(server_url: str) -> AsyncIterator[AsyncConnection]:
    async with await AsyncConnection.open(server_url) as connection:
        yield connection


class Lead:
    """A leader whose clock the test sets."""

    def __init__(self, queue: AsyncQueue, connection: AsyncConnection, raw: redis.Redis) -> None:
        self.now_ms = int(time.time() * 1000)
        self.keys = queue.keys
        self._raw = raw
        self.leader = SchedulerLeader(queue.keys, connection, timedelta(seconds=5), lambda: self.now_ms)

    async def tick(self, after_ms: int = 0) -> list[str]:
        """The jobs that this tick made."""
        before = set(self._raw.scan_iter(self.keys.job("*")))
        self.now_ms += after_ms
        await self.leader.tick(0)
        made = set(self._raw.scan_iter(self.keys.job("*"))) - before
        return sorted((key.rpartition(":")[2] for key in made), key=lambda job_id: int(job_id.rpartition(".")[2]))

    def set(self, name: str, schedule: Schedule, **members: Any) -> SchedulerEntry:
        """Set a schedule as its client would at the leader's time."""
        entry = SchedulerEntry.initial(schedule, JobTemplate(), self.now_ms)
        self.store(name, {**entry.members, **members})
        return entry

    def store(self, name: str, members: dict[str, Any]) -> None:
        """Write an entry as another client would: into the hash alone."""
        self._raw.hset(self.keys.schedulers, name, json.dumps(members))

    def entry(self, name: str = "often") -> SchedulerEntry | None:
        text = self._raw.hget(self.keys.schedulers, name)
        return None if text is None else SchedulerEntry.parse(str(text))

    def end(self, job_id: str, state: str = "completed") -> None:
        """What matters to a leader of a job's end."""
        self._raw.hset(self.keys.job(job_id), mapping={"state": state, "finishedOn": self.now_ms})

    def state(self, job_id: str) -> str | None:
        state = self._raw.hget(self.keys.job(job_id), "state")
        return None if state is None else str(state)


@pytest.fixture
def lead(queue: AsyncQueue, connection: AsyncConnection, raw: redis.Redis) -> Lead:
    return Lead(queue, connection, raw)


@pytest.mark.parametrize(
    ("missed", "made"),
    [
        ("fire_once", [1]),
        ("skip", []),
        (MissedRuns.fire_all(3), [8, 9, 10]),
        (MissedRuns.fire_all(50), [*range(1, 11)]),
    ],
)
async def test_late_runs(lead: Lead, missed: Any, made: list[int]) -> None:
    entry = lead.set("often", Every(120, missed=missed))
    first_ms = entry.next_run
    jobs = await lead.tick(10 * 120_000 + 90_000)
    assert jobs == [f"repeat.often.{first_ms + (run - 1) * 120_000}" for run in made]
    after = lead.entry()
    assert after is not None
    assert after.next_run == first_ms + 10 * 120_000, "the phase is kept"
    assert after.iteration_count == len(made)


async def test_a_run_that_is_only_a_little_late_is_not_skipped(lead: Lead) -> None:
    lead.set("often", Every(120, missed="skip"))
    assert len(await lead.tick(120_000 + 59_000)) == 1


async def test_jitter_delays_each_run_by_its_own_share(lead: Lead) -> None:
    entry = lead.set("often", Every(600, jitter=timedelta(minutes=5)))
    late_ms = entry.run_at("often") - entry.next_run
    assert 0 < late_ms <= 5 * MINUTE_MS
    assert await lead.tick(600_000 + late_ms - 1) == []
    assert await lead.tick(1) == [f"repeat.often.{entry.next_run}"]
    after = lead.entry()
    assert after is not None
    assert after.next_run == entry.next_run + 600_000
    assert after.run_at("often") - after.next_run != late_ms


async def test_skip_leaves_out_what_overlaps(lead: Lead, connection: AsyncConnection) -> None:
    lead.set("often", Every(10, overlap="skip"))
    (first,) = await lead.tick(10_000)
    assert await lead.tick(10_000) == []
    lead.end(first)
    (third,) = await lead.tick(10_000)
    entry = lead.entry()
    assert entry is not None
    assert (entry.iteration_count, entry.last_job) == (2, third)
    past = await connection.run(schedule_entries.history(lead.keys, "often"))
    assert [run.outcome for run in past] == ["fired", "overlap", "fired"]
    assert [run.job_id for run in past] == [third, "", first]


async def test_queue_one_makes_the_latest_run_when_the_job_before_has_ended(lead: Lead) -> None:
    lead.set("often", Every(60, overlap="queue_one"))
    (first,) = await lead.tick(60_000)
    assert await lead.tick(60_000) == await lead.tick(60_000) == []
    entry = lead.entry()
    assert entry is not None
    lead.end(first)
    queued = entry.queued
    assert await lead.tick(15_000) == [f"repeat.often.{queued}"]
    entry = lead.entry()
    assert entry is not None
    assert (entry.queued, entry.iteration_count) == (0, 2)
    assert entry.next_run > lead.now_ms


async def test_a_queued_run_follows_at_once_with_a_real_worker(queue: AsyncQueue, server_url: str) -> None:
    running, starts = asyncio.Event(), list[float]()

    async def handle(job: AsyncActiveJob) -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            await running.wait()

    await queue.schedulers.upsert("often", Every(0.2, overlap="queue_one", limit=2))
    async with working(queue, handle, server_url):
        await wait_until(lambda: len(starts) == 1, "the first run")
        entry = await queue.schedulers.get("often")
        while entry is not None and not entry.queued:
            entry = await queue.schedulers.get("often")
        running.set()
        released = time.monotonic()
        await wait_until(lambda: len(starts) == 2, "the queued run")
    assert starts[1] - released < CHECK_MS / 1000 - 2, "well before it would be looked for"
    assert await queue.schedulers.list() == {}


async def test_a_queued_run_is_made_soon_although_nobody_told_of_the_end_before_it(
    lead: Lead, raw: redis.Redis
) -> None:
    lead.set("often", Every(3600, overlap="queue_one"))
    (first,) = await lead.tick(3_600_000)
    assert await lead.tick(3_600_000) == []
    lead.end(first)
    raw.delete(lead.keys.schedulers_looked)  # so that the index is compared with the entries, as once a minute
    assert len(await lead.tick()) + len(await lead.tick(15_000)) == 1


async def test_the_end_of_a_job_is_told_although_somebody_holds_the_lock_for_a_moment(
    lead: Lead, raw: redis.Redis
) -> None:
    lead.set("chain", RepeatAfterComplete(30))
    assert len(await lead.tick()) == 1
    raw.set(lead.keys.schedulers_lock, "another", px=150)
    await lead.leader.finished("chain")
    entry = lead.entry("chain")
    assert entry is not None
    assert entry.next_run == lead.now_ms + 30_000
    assert not raw.exists(lead.keys.schedulers_lock)


async def test_a_lock_that_somebody_holds_is_tried_again_well_before_it_runs_out(lead: Lead, raw: redis.Redis) -> None:
    lead.set("often", Every(60))
    raw.set(lead.keys.schedulers_lock, "a leader that was killed", px=60_000)
    again_ms = await lead.leader.tick(0)
    assert lead.now_ms < again_ms <= lead.now_ms + 2500


async def test_replace_revokes_what_overlaps(lead: Lead) -> None:
    lead.set("often", Every(10, overlap="replace"))
    (first,) = await lead.tick(10_000)
    (second,) = await lead.tick(10_000)
    assert (lead.state(first), lead.state(second)) == ("failed", "waiting")


async def test_a_paused_schedule_makes_nothing_and_goes_on_where_it_would_be(lead: Lead) -> None:
    entry = lead.set("often", Every(10))
    lead.store("often", dict(entry.paused().members))
    paused = lead.entry()
    assert paused is not None
    assert (paused.is_paused, paused.members["nextRun"]) == (True, 0)
    assert await lead.tick(95_000) == []
    resumed = paused.resumed(lead.now_ms)
    assert resumed is not None
    assert resumed.next_run == entry.next_run + 90_000
    lead.store("often", dict(resumed.members))
    lead._raw.delete(lead.keys.schedulers_looked)
    assert await lead.tick(5_000) == [f"repeat.often.{resumed.next_run}"]


async def test_other_clients_edits_of_the_hash_are_found_within_a_minute(lead: Lead, raw: redis.Redis) -> None:
    lead.store("theirs", {"every": 10_000, "nextRun": lead.now_ms + 3_600_000, "iterationCount": 0})
    assert await lead.tick() == []
    lead.store("theirs", {"every": 10_000, "nextRun": lead.now_ms, "iterationCount": 0})
    assert await lead.tick() == [], "the index knows of the old time"
    assert raw.pttl(lead.keys.schedulers_looked) <= MINUTE_MS
    raw.delete(lead.keys.schedulers_looked)
    assert len(await lead.tick()) == 1
    raw.delete(lead.keys.schedulers)
    await lead.tick()
    assert not raw.exists(lead.keys.schedulers_due)


@pytest.mark.parametrize("how", ["completed", "failed", "removed"])
@pytest.mark.parametrize("is_ours", [True, False], ids=["our entry", "another client's"])
async def test_a_chain_whose_job_ended_untold_goes_on(lead: Lead, raw: redis.Redis, how: str, is_ours: bool) -> None:
    lead.set("chain", RepeatAfterComplete(30))
    (first,) = await lead.tick()
    if not is_ours:
        raw.hset(lead.keys.job(first), "schedulerName", "chain")
        lead.store("chain", {"repeatAfterComplete": 30_000, "nextRun": 0, "iterationCount": 1, "lastRun": lead.now_ms})
    assert await lead.tick(60_000) == [], "its job is under way"
    entry = lead.entry("chain")
    assert entry is not None
    assert entry.waits_for_completion
    lead.end(first, how)
    raw.xtrim(lead.keys.stream, maxlen=0, approximate=False)
    if how == "removed":
        raw.delete(lead.keys.job(first))
    await lead.tick(20_000)
    entry = lead.entry("chain")
    assert entry is not None
    assert not entry.waits_for_completion
    assert len(await lead.tick(30_000)) == 1


async def test_a_flow_is_submitted_for_each_run(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    ran: list[str] = []

    async def handle(job: AsyncActiveJob) -> None:
        ran.append(job.name)

    dag = Dag("etl", [Node("extract", data={"day": 1}), Node("load", deps=["extract"])], queue=queue.name)
    await queue.schedulers.upsert("nightly.etl", Every(0.3, limit=2), FlowTemplate(dag))
    async with working(queue, handle, server_url):
        await wait_until(lambda: len(ran) == 4, "both flows")
    assert sorted(ran) == ["extract", "extract", "load", "load"]
    submitters = [key.rpartition(":")[2] for key in raw.scan_iter(queue.keys.job("repeat.*"))]
    flows = {flow_id_of(job_id) for job_id in submitters}
    assert len(flows) == 2
    nodes = {f"{flow}.{node}" for flow in flows for node in ("extract", "load")}
    assert {key.rpartition(":")[2] for key in raw.scan_iter(queue.keys.job("*"))} == {*submitters, *nodes}


async def test_a_flow_nobody_can_read_fails_its_submitter(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async def handle(job: AsyncActiveJob) -> None:
        raise AssertionError("no handler of users gets it")

    async with working(queue, handle, server_url):
        job = await queue.add("oq.submit_flow", {"dag": {"name": "x"}})
        await wait_until(lambda: raw.zcard(queue.keys.failed), "its failure")
    assert "has no valid flow to submit" in str(raw.hget(queue.keys.job(job.id), "failedReason"))


async def test_ten_thousand_schedules_are_no_work_while_none_is_due(lead: Lead, raw: redis.Redis) -> None:
    entry = {"every": 3_600_000, "nextRun": lead.now_ms + 3_600_000, "iterationCount": 0}
    raw.hset(lead.keys.schedulers, mapping={f"s{n}": json.dumps(entry) for n in range(10_000)})
    while not raw.exists(lead.keys.schedulers_looked):  # a pause longer than the lock lasts makes it begin again
        await lead.tick()
    lead.set("due", Every(1))
    raw.zadd(lead.keys.schedulers_due, {"due": lead.now_ms + 1000})
    raw.config_resetstat()
    assert len(await lead.tick(1000)) == 1
    calls = {name: int(stats["calls"]) for name, stats in raw.info("commandstats").items()}
    assert "cmdstat_hgetall" not in calls
    assert calls["cmdstat_fcall"] == 4, "lock, look, fire, unlock"
