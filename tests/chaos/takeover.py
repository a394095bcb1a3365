"""How long a queue's schedules are stalled when the worker that leads them is killed."""

from __future__ import annotations

import json
import signal
import time
from datetime import timedelta

import redis

from orchestration_queue.client import Queue
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.schedules import Every, JobTemplate
from tests.chaos.saboteur import Saboteur
from tests.chaos.workers import kill, suspend
from tests.processes import worker_process
from tests.waiting import wait_until_sync

__all__ = ["made", "plan", "takeover_s"]

_DEADLINE_S = 60.0


def plan(queue: Queue, raw: redis.Redis, *, is_indexed: bool = True) -> int:
    """A schedule with a single run, due now."""
    name = "once"
    queue.schedulers.upsert(name, Every(timedelta(hours=1)), JobTemplate(name="work", data={"seconds": 0}))
    due_ms = int(time.time() * 1000)
    entry = json.loads(str(raw.hget(queue.keys.schedulers, name)))
    raw.hset(queue.keys.schedulers, name, json.dumps({**entry, "nextRun": due_ms}))
    raw.zadd(queue.keys.schedulers_due, {name: due_ms})
    if is_indexed:
        raw.set(queue.keys.schedulers_looked, 1, px=60_000)
    raw.config_resetstat()
    return due_ms


def made(raw: redis.Redis, keys: QueueKeys) -> list[str]:
    return [str(key).rpartition(":")[2] for key in raw.scan_iter(keys.job("*"))]


def takeover_s(queue: str, url: str, raw: redis.Redis, saboteur: Saboteur, *, interval_s: float) -> float:
    """Kill a leader that holds the lock; the seconds until a worker that stands by has made the run that was due.

    Args:
        queue: An unused queue.
        url: The server.
        raw: A client of it.
        saboteur: In front of it.
        interval_s: The workers' promotion interval, which decides how long the lock holds: twice that, 1 s at least
            and 5 s at most.
    """
    how = ("--promotion-interval", str(interval_s))
    with (
        Queue(queue, url=url) as client,
        worker_process("tests.chaos.jobs:tasks", queue, saboteur.url, *how) as leader,
        worker_process("tests.chaos.jobs:tasks", queue, url, *how) as standby,
    ):
        wait_until_sync(lambda: _waiting(raw) == 2, "both workers to wait for jobs", _DEADLINE_S)
        suspend(standby)
        saboteur.hold_requests("oq1_fire")
        plan(client, raw)
        wait_until_sync(lambda: saboteur.held > 0, "the leader to hold the lock and to be about to write", _DEADLINE_S)
        standby.send_signal(signal.SIGCONT)
        kill(leader)
        killed = time.monotonic()
        wait_until_sync(lambda: made(raw, client.keys), "the run", _DEADLINE_S)
        took_s = time.monotonic() - killed
        saboteur.relent()
    return took_s


def _waiting(raw: redis.Redis) -> int:
    return sum(client["cmd"] == "xreadgroup" and "b" in client["flags"] for client in raw.client_list())
