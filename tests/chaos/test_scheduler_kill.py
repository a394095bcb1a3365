"""The worker that leads the schedulers dies, sleeps, or has a wrong clock: each run that is due makes one job."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.schedules import Timing
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.scheduler_leader import SchedulerLeader
from tests.chaos.saboteur import Saboteur
from tests.chaos.takeover import made, plan, takeover_s
from tests.chaos.workers import BUSY_S, cli_worker, kill, suspend
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

LOCK_S = 1.0
"""How long the lock of these workers holds, with their short intervals."""
TAKEOVER_S = 2 * LOCK_S + BUSY_S
"""Twice that, and the time in which a process starts."""
INDEX = "HGETALL"
"""What a leader sends only when it compares the index with all entries."""
STEPS = ["glidemq_tryLock", INDEX, "oq1_dueSchedulers", "oq1_fire", "glidemq_unlock"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_leader_killed_at_any_step_neither_loses_a_run_nor_makes_it_twice(
    server_url: str,
    queue_name: str,
    raw: redis.Redis,
    saboteur: Saboteur,
    recovered: Callable[[float, float], None],
    step: str,
    when: str,
) -> None:
    with Queue(queue_name, url=server_url) as queue:
        if when == "before":
            saboteur.hold_requests(step)
        else:
            saboteur.hold_replies(step)
        due_ms = plan(queue, raw, is_indexed=step != INDEX)
        with cli_worker(queue_name, saboteur.url) as leader:
            wait_until_sync(lambda: saboteur.held or saboteur.withheld, f"the leader to get to {step}")
            assert raw.pttl(queue.keys.schedulers_lock) <= LOCK_S * 1000
            kill(leader)
        killed = time.monotonic()
        with cli_worker(queue_name, server_url):
            wait_until_sync(lambda: made(raw, queue.keys), "the run")
            recovered(time.monotonic() - killed, TAKEOVER_S)
            wait_until_sync(lambda: raw.zcard(queue.keys.completed) == 1, "its job to complete")
            wait_until_sync(lambda: not raw.exists(queue.keys.schedulers_lock), "the lock to be free")
        entry = json.loads(str(raw.hget(queue.keys.schedulers, "once")))
        assert made(raw, queue.keys) == [f"repeat.once.{due_ms}"]
        assert entry["iterationCount"] == 1
        assert entry["nextRun"] == due_ms + 3_600_000
        saboteur.relent()


def test_a_standby_takes_over_within_two_lock_times(
    server_url: str, queue_name: str, raw: redis.Redis, saboteur: Saboteur, recovered: Callable[[float, float], None]
) -> None:
    recovered(takeover_s(queue_name, server_url, raw, saboteur, interval_s=0.2), 2 * LOCK_S + BUSY_S)


def test_a_leader_that_sleeps_past_its_lock_writes_nothing_when_it_wakes(
    server_url: str, queue_name: str, raw: redis.Redis, saboteur: Saboteur, tmp_path: Path
) -> None:
    log = tmp_path / "sleeper.log"
    with Queue(queue_name, url=server_url) as queue:
        saboteur.hold_replies("oq1_dueSchedulers")
        due_ms = plan(queue, raw)
        with cli_worker(queue_name, saboteur.url, log=log) as sleeper:
            wait_until_sync(lambda: saboteur.withheld, "the leader to hold the lock, and to know of the run")
            suspend(sleeper)
            with cli_worker(queue_name, server_url):
                wait_until_sync(lambda: raw.zcard(queue.keys.completed) == 1, "the other to take over")
                saboteur.relent()
                sleeper.send_signal(signal.SIGCONT)
                wait_until_sync(lambda: "were taken over by another" in log.read_text(), "the sleeper to be refused")
        assert made(raw, queue.keys) == [f"repeat.once.{due_ms}"]
        assert json.loads(str(raw.hget(queue.keys.schedulers, "once")))["iterationCount"] == 1


class OtherLeader:
    """A leader of another client: it knows the entries' hash alone, and goes by its own clock."""

    def __init__(self, raw: redis.Redis, keys: QueueKeys) -> None:
        self._raw, self._keys = raw, keys

    def tick(self, now_ms: int) -> None:
        keys, raw = self._keys, self._raw
        if not raw.fcall("glidemq_tryLock", 1, keys.schedulers_lock, "another", "1000"):
            return
        with raw.pipeline(transaction=True) as write:
            for name, text in raw.hgetall(keys.schedulers).items():
                entry = json.loads(text)
                if not entry.get("nextRun") or entry["nextRun"] > now_ms:
                    continue
                words = [name, "{}", "{}", now_ms, 0, 0, "", 0, "", 0, 0, 0, 0, 0, 0, 0, "", 0, "", "", 0]
                write.fcall("glidemq_addJob", 4, keys.id, keys.stream, keys.scheduled, keys.events, *map(str, words))
                following = Timing.read(entry).following_run(entry["nextRun"], now_ms)
                entry |= {"lastRun": now_ms, "iterationCount": entry["iterationCount"] + 1, "nextRun": following}
                write.hset(keys.schedulers, name, json.dumps(entry))
            write.execute()
        raw.fcall("glidemq_unlock", 1, keys.schedulers_lock, "another")


@pytest.mark.parametrize("ahead_ms", [-7000, 0, 400, 7000])
async def test_leaders_with_different_clocks_make_each_run_once(
    server_url: str, queue_name: str, raw: redis.Redis, ahead_ms: int
) -> None:
    keys, start_ms = QueueKeys(queue_name), int(time.time() * 1000)
    now_ms = start_ms
    first_ms = start_ms + 2000 + max(0, ahead_ms)
    entry = {"every": 2000, "nextRun": first_ms, "iterationCount": 0, "oq": {"overlap": "allow", "x": [1]}}
    raw.hset(keys.schedulers, "often", json.dumps(entry))
    async with await AsyncConnection.open(server_url) as connection:
        ours = SchedulerLeader(keys, connection, timedelta(seconds=1), lambda: now_ms)
        other = OtherLeader(raw, keys)
        for step in range(60):
            now_ms = start_ms + step * 500
            if step % 3 == 0:
                await asyncio.to_thread(other.tick, now_ms + ahead_ms)
            await ours.tick(0)
    after = json.loads(str(raw.hget(keys.schedulers, "often")))
    due_runs = (after["nextRun"] - first_ms) // 2000
    assert len(made(raw, keys)) == after["iterationCount"] == due_runs
    assert due_runs >= 14
    assert after["oq"] == entry["oq"], "a member that the other client does not know survives it"
