"""What a registered reader of a queue's events costs per job, and what it finds after it paused during a burst.

``python -m tests.bench.readers [--jobs 20000] [--burst 100000]`` prints JSON. The same no-op jobs go through one worker
without a reader and with one, in turn: medians per job. The limit is the queue without a reader. Then the frozen
functions add and settle a burst while the reader pauses, and it reads what is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from itertools import count

import redis

from orchestration_queue import AsyncQueue, NewJob, Queue, Worker, WorkerOptions
from orchestration_queue.protocol.call import chunks
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.server import Connection
from orchestration_queue.worker import AsyncActiveJob
from tests.bench.server import Meter, server

_ROUNDS = 5
_names = (f"bench-{number}" for number in count())


async def _noop(_: AsyncActiveJob) -> None:
    return None


async def drain(url: str, jobs: int, *, is_registered: bool) -> dict[str, float]:
    """Add and complete jobs; return what one cost."""
    meter = Meter(url)
    async with AsyncQueue(next(_names), url=url) as queue:
        if is_registered:
            async with queue.events():
                pass
        worker = Worker(queue.name, _noop, url=url, options=WorkerOptions(concurrency=100))
        meter.begin()
        await queue.add_bulk([NewJob("noop") for _ in range(jobs)])
        running = asyncio.create_task(worker.run())
        while (await queue.counts()).completed < jobs:  # noqa: ASYNC110  the server's count is asked
            await asyncio.sleep(0.05)
        cost = meter.end().per_job(jobs)
        worker.stop()
        await running
    return {name: cost[name] for name in ("commands", "server_us")}


def burst(url: str, jobs: int) -> dict[str, float]:
    """Let a reader pause during a burst; return what it finds afterwards, and the memory that is kept for it."""
    client = redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True)
    with Queue(next(_names), url=url) as queue, Connection.open(url) as connection, queue.events() as events:
        keys = queue.keys
        began = time.monotonic()
        for names in chunks([str(number) for number in range(jobs)], 500):
            calls = [
                call
                for name in names
                for call in (
                    glidemq.add_job(keys, job_name="noop", data="null", opts="{}", timestamp_ms=1, custom_id=name),
                    glidemq.complete(
                        keys, job_key=keys.job(name), metrics_key=keys.metrics_completed, job_id=name, entry_id="0-1",
                        returnvalue="null", now_ms=1, group="workers", remove_mode="true",
                    ),
                )
            ]  # fmt: skip
            connection.pipeline(calls)
        took = time.monotonic() - began
        kept = int(client.execute_command("MEMORY", "USAGE", keys.events, "SAMPLES", 0))  # type: ignore[no-untyped-call]
        found: list[tuple[str, str]] = []
        while page := events.read(0):
            found += [(event.type, event.job_id) for event in page]
    return {
        "jobs": jobs,
        "jobs_per_s": round(jobs / took),
        "completions_found": sum(kind == "completed" for kind, _ in found),
        "completions_lost": jobs - len({job_id for kind, job_id in found if kind == "completed"}),
        "kept_mib": round(kept / 2**20, 1),
    }


async def measure(jobs: int, burst_jobs: int) -> dict[str, object]:
    """Measure all; each figure on the same server."""
    with server() as url:
        await drain(url, jobs // 10, is_registered=False)
        rounds: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for number in range(2 * _ROUNDS):
            is_registered = number % 4 in (1, 2)
            rounds[is_registered].append(await drain(url, jobs, is_registered=is_registered))
        medians = {
            name: {what: round(statistics.median(one[what] for one in found), 3) for what in found[0]}
            for name, found in (("limit: without a reader", rounds[False]), ("with a reader", rounds[True]))
        }
        return {"per job": medians, "burst": await asyncio.to_thread(burst, url, burst_jobs)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--burst", type=int, default=100_000)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.jobs, given.burst)), indent=2))


if __name__ == "__main__":
    main()
