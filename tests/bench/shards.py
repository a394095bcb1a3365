"""What a queue of eight shards costs each primary of a cluster of one, two and three, beside a plain queue.

``python -m tests.bench.shards [--jobs 20000]`` prints JSON: jobs a second of one client that adds in bulk and of one
process that drains no-ops, and for each primary the jobs that fell to it and its processor time for one, in
microseconds. Client, workers and primaries share this machine's cores, so the rates do not add up; the costs do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from orchestration_queue import AsyncShardedQueue, NewJob, Worker, WorkerOptions, shard_workers
from orchestration_queue.client import AsyncQueue
from orchestration_queue.worker import AsyncActiveJob
from tests.nodes import Cluster, Nodes

SHARDS = 8


async def _nothing(_job: AsyncActiveJob) -> None:
    return None


def _used_us(cluster: Cluster) -> list[float]:
    """Processor time of each primary so far."""
    facts = [node.raw.info("cpu") for node in cluster.nodes]
    return [1e6 * (fact["used_cpu_user"] + fact["used_cpu_sys"]) for fact in facts]


async def _drain(workers: Sequence[Worker], queue: AsyncShardedQueue | AsyncQueue, jobs: int) -> None:
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    while (await queue.counts()).completed < jobs:  # noqa: ASYNC110  what other processes did is only to be asked
        await asyncio.sleep(0.05)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)


async def measure(cluster: Cluster, shards: int, jobs: int, slots: int) -> dict[str, object]:
    """Add and drain jobs; ``shards`` 0 is a plain queue."""
    name = f"bench{shards}"
    options = WorkerOptions(concurrency=slots)
    queue: AsyncShardedQueue | AsyncQueue
    if shards:
        queue = AsyncShardedQueue(name, shards, url=cluster.url)
        workers = shard_workers(name, _nothing, shards, url=cluster.url, options=options)
        owners = [cluster.nodes.index(cluster.owner(shard.name)) for shard in queue.shards]
    else:
        queue = AsyncQueue(name, url=cluster.url)
        workers = [Worker(name, _nothing, url=cluster.url, options=options)]
        owners = [cluster.nodes.index(cluster.owner(name))]
    fallen = [jobs * owners.count(place) / len(owners) for place in range(len(cluster.nodes))]
    async with queue:
        await queue.counts()
        before, began = _used_us(cluster), time.monotonic()
        await queue.add_bulk([NewJob("none", {"n": n}) for n in range(jobs)])
        added, filled = _used_us(cluster), time.monotonic()
        await _drain(workers, queue, jobs)
        drained, ended = _used_us(cluster), time.monotonic()
    return {
        "primaries": len(cluster.nodes),
        "shards": shards or "plain",
        "slots": slots,
        "added a second": round(jobs / (filled - began)),
        "drained a second": round(jobs / (ended - filled)),
        "by primary": [
            {
                "jobs": round(count),
                "us to add one": round((added[place] - before[place]) / count, 1),
                "us to drain one": round((drained[place] - added[place]) / count, 1),
            }
            for place, count in enumerate(fallen)
            if count
        ],
    }


def main() -> int:
    """Measure every cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=256)
    arguments = parser.parse_args()
    results = []
    for primaries in (1, 2, 3):
        with tempfile.TemporaryDirectory() as directory, Nodes(Path(directory)) as nodes:
            cluster = nodes.start_cluster(primaries)
            results += [
                asyncio.run(measure(cluster, shards, arguments.jobs, arguments.slots)) for shards in (0, SHARDS)
            ]
    print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
