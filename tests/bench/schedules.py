"""What one round of a worker's housekeeping costs, by how many schedules there are and how many are due; and how long
schedules are stalled when the worker that leads them is killed.

Run as ``python -m tests.bench.schedules``; prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import redis

from orchestration_queue.options import WorkerOptions, as_timedelta
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.queue_io import QueueIO
from orchestration_queue.worker.scheduler_leader import SchedulerLeader
from tests.bench.server import server
from tests.chaos.saboteur import Saboteur
from tests.chaos.takeover import takeover_s

__all__ = ["measure", "takeovers"]

_HOUR_MS = 3_600_000
_ROUNDS = 50


async def measure(url: str, schedules: int, due: int) -> dict[str, float]:
    """Median milliseconds of a round, and its commands, with `schedules` schedules of which `due` are due each time."""
    keys, options = QueueKeys(f"bench-{schedules}-{due}"), WorkerOptions()
    async with await AsyncConnection.open(url) as connection:
        io = QueueIO(keys, "bench", connection, connection, options)
        await io.set_clock()
        ahead_ms = 0
        interval = as_timedelta(options.promotion_interval)
        leader = SchedulerLeader(keys, connection, interval, lambda: io.clock.now_ms() + ahead_ms)
        await _plan(connection, keys, schedules, due, io.clock.now_ms())
        await leader.tick((await io.tick()).schedules_due_ms)
        rounds = []
        before = await _commands(connection, keys)
        for _ in range(_ROUNDS):
            ahead_ms += 10_000
            began = time.perf_counter()
            await leader.tick((await io.tick()).schedules_due_ms)
            rounds.append(time.perf_counter() - began)
        commands = await _commands(connection, keys) - before
    return {"median_ms": round(statistics.median(rounds) * 1e3, 3), "calls": round(commands / _ROUNDS, 2)}


async def _plan(connection: AsyncConnection, keys: QueueKeys, schedules: int, due: int, now_ms: int) -> None:
    """Schedules of which some are due every ten seconds, and the others in a long time."""

    for number in range(schedules):
        every_ms = 10_000 if number < due else 1000 * _HOUR_MS
        entry = json.dumps({"every": every_ms, "nextRun": now_ms + every_ms, "iterationCount": 0})
        await connection.execute(Call("HSET", (keys.schedulers,), (f"s{number}", entry)))


async def _commands(connection: AsyncConnection, keys: QueueKeys) -> int:

    info = await connection.execute(Call("INFO", args=("commandstats",), near=keys.stream))
    words = info.decode() if isinstance(info, bytes) else str(info)
    line = next(line for line in words.splitlines() if line.startswith("cmdstat_fcall:"))
    return int(line.partition("calls=")[2].partition(",")[0])


async def _rounds(url: str) -> dict[str, dict[str, float]]:
    return {
        f"{schedules} schedules, {due} due": await measure(url, schedules, due)
        for schedules in (100, 10_000)
        for due in (0, 10)
    }


def takeovers(url: str, interval_s: float, rounds: int) -> dict[str, float | list[float]]:
    """Seconds from the death of a leader to the run that another worker makes, and how long the leader's lock held."""
    seconds = []
    with redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True) as raw:
        for number in range(rounds):
            with (
                tempfile.TemporaryDirectory() as directory,
                Saboteur(Path(url.removeprefix("unix://")), Path(directory) / "saboteur.sock") as saboteur,
            ):
                queue = f"takeover-{interval_s:g}-{number}"
                seconds.append(round(takeover_s(queue, url, raw, saboteur, interval_s=interval_s), 2))
    return {"lock_s": min(5.0, max(1.0, 2 * interval_s)), "takeover_s": seconds}


def _all(url: str) -> dict[str, object]:
    return {
        "rounds": asyncio.run(_rounds(url)),
        "takeovers": [takeovers(url, interval_s=0.2, rounds=5), takeovers(url, interval_s=5, rounds=3)],
    }


if __name__ == "__main__":
    with server() as where:
        print(json.dumps(_all(where), indent=2))
