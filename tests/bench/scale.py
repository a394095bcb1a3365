"""What large numbers need: memory and processor time of the server, the longest command, at a tenth and at the whole.

``python -m tests.bench.scale [--only jobs flow] [--share 0.1]`` prints JSON. The memory of a job is beside that of
BullMQ's Python port, if it is installed (``make bench-peers`` does).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec

import redis

from orchestration_queue import AsyncQueue, Dag, Every, FlowProducer, NewJob, Node, Queue
from orchestration_queue.options import JobOptions, Retention, WorkerOptions
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.server import Connection
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.bench.apart import worker_apart
from tests.bench.contenders import QUEUE, contender
from tests.bench.schedules import measure as measure_schedules
from tests.bench.server import Meter, server

Figures = dict[str, float]
CHUNK, PROBES, UPGRADES, IDLE_S = 10_000, 1_000, 20, 10.0
SETTLED_S = 45.0
"""After which sockets are closed that only the start needed."""
RETAINED = {
    "all": Retention(),
    "last_100": Retention(count=100),
    "last_hour": Retention(age=timedelta(hours=1)),
    "none": Retention(count=0),
}


def _empty(url: str) -> None:
    """Drop all data, and wait until their memory is free."""
    with redis.Redis.from_url(url) as client:
        client.execute_command("FLUSHALL", "SYNC")


def _bytes(url: str) -> int:
    """How much memory the server uses."""
    with redis.Redis.from_url(url) as client:
        return int(client.info("memory")["used_memory"])


def _kib_each(url: str, before: int, count: int) -> float:
    return round((_bytes(url) - before) / count / 1024, 2)


def _noop(_: object) -> None:
    pass


def _fail(_: object) -> None:
    raise ValueError("the file has no header")


async def _work_off(name: str, url: str, jobs: int, handle: Callable[[object], None]) -> None:
    """Run a contender's worker until it has started all jobs; it has reported them when it is closed."""
    left, over = jobs, asyncio.Event()

    def count(data: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()
        handle(data)

    async with contender(name).working(url, 32, count):
        await over.wait()


def records(url: str, jobs: int) -> Figures:
    """KiB of a job that waits, has completed or has failed, of ours and BullMQ's; events and metrics included."""
    figures: Figures = {}
    for name in ("ours", "bullmq") if find_spec("bullmq") else ("ours",):
        for outcome, handle in (("completed", _noop), ("failed", _fail)):
            _empty(url)
            before = _bytes(url)
            contender(name).enqueue_bulk(url, jobs, lambda: None)
            figures[f"{name}_waiting_kib"] = _kib_each(url, before, jobs)
            asyncio.run(_work_off(name, url, jobs, handle))
            figures[f"{name}_{outcome}_kib"] = _kib_each(url, before, jobs)
    return figures


def retention(url: str, jobs: int) -> Figures:
    """Server's microseconds of a job that is taken and completed, by how long completed ones are kept."""
    figures: Figures = {}
    with Meter(url) as meter:
        for name, kept in RETAINED.items():
            meter.reset()
            with Queue(QUEUE, url=url) as queue:
                options = JobOptions(remove_on_complete=kept)
                queue.add_bulk([NewJob("noop", {"at": n}, options=options) for n in range(jobs)])
            meter.begin()
            asyncio.run(_work_off("ours", url, jobs, _noop))
            figures[f"{name}_server_us"] = meter.end().per_job(jobs)["server_us"]
    return figures


def jobs(url: str, count: int) -> Figures:
    """Waiting jobs: memory of one, and what adding and working off some more of them cost the server."""
    before = _bytes(url)
    with Queue(QUEUE, url=url) as queue, Meter(url) as meter:
        for first in range(0, count, CHUNK):
            queue.add_bulk([NewJob("noop", {"at": first + n}) for n in range(CHUNK)])
        kib = _kib_each(url, before, count)
        meter.begin()
        for n in range(PROBES):
            queue.add("noop", {"at": n})
        added = meter.end()
        meter.begin()
        asyncio.run(_work_off("ours", url, CHUNK, _noop))
        worked = meter.end()
    return {
        "kib_a_job": kib,
        "add_server_us": round(added.server_us / PROBES, 1),
        "work_server_us": round(worked.server_us / CHUNK, 1),
    }


def upgrade(url: str, count: int) -> Figures:
    """An upgrade of the libraries beside waiting jobs: processor time of the server, and what connecting takes."""
    older = [re.sub(r'local REVISION = "\d+"', 'local REVISION = "0"', library.text) for library in LIBRARIES]
    servers, connects = [], []
    with redis.Redis.from_url(url) as client, Queue(QUEUE, url=url) as queue, Meter(url) as meter:
        for first in range(0, count, CHUNK):
            queue.add_bulk([NewJob("noop", {"at": n}) for n in range(first, min(first + CHUNK, count))])
        for _ in range(UPGRADES):
            for text in older:
                client.function_load(text, replace=True)
            meter.begin()
            began = time.perf_counter()
            Connection.open(url).close()
            connects.append((time.perf_counter() - began) * 1000)
            servers.append(meter.end().server_us / 1000)
    return {"server_ms": round(statistics.median(servers), 1), "connect_ms": round(statistics.median(connects), 1)}


def queues(url: str, count: int) -> Figures:
    """Queues with a job each: memory of one, and the time that the list of all takes."""
    before = _bytes(url)
    with Connection.open(url) as connection:
        for n in range(count):
            Queue(f"q{n}", connection=connection).add("noop", {})
        began = time.perf_counter()
        assert len(Queue.names(connection=connection)) == count
        return {"kib_a_queue": _kib_each(url, before, count), "list_s": round(time.perf_counter() - began, 3)}


def schedules(url: str, count: int) -> Figures:
    """Schedules that are not due: memory of one, and a leader's round."""
    before = _bytes(url)
    with Queue(QUEUE, url=url) as queue:
        for n in range(count):
            queue.schedulers.upsert(f"s{n}", Every(timedelta(hours=1)))
    kib = _kib_each(url, before, count)
    rounds = asyncio.run(measure_schedules(url, count, 0))
    return {"kib_a_schedule": kib, "round_ms": rounds["median_ms"], "round_calls": rounds["calls"]}


async def _noop_job(_: AsyncActiveJob) -> None:
    pass


def workers(url: str, count: int) -> Figures:
    """Idle workers of one queue in this process: connections, commands and processor time of each a second."""

    async def idle() -> Figures:
        all_workers = [Worker(QUEUE, _noop_job, url=url, options=WorkerOptions()) for _ in range(count)]
        running = [asyncio.ensure_future(worker.run()) for worker in all_workers]
        while not all(worker.is_listening for worker in all_workers):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        with Meter(url) as meter:
            await asyncio.sleep(SETTLED_S)
            connections = meter.connections()
            meter.begin()
            await asyncio.sleep(IDLE_S)
            cost = meter.end()
            meter.begin()
            async with AsyncQueue(QUEUE, url=url) as queue:
                for _ in range(PROBES // 10):
                    await (await queue.add("noop", {})).wait()
            alone = meter.end()
        for worker in all_workers:
            worker.stop()
        await asyncio.gather(*running)
        return {
            "connections_each": round(connections / count, 2),
            "commands_per_s_each": round(cost.commands / cost.seconds / count, 2),
            "server_ms_per_s": round(cost.server_us / cost.seconds / 1000, 2),
            "client_ms_per_s_each": round(cost.client_us / cost.seconds / 1000 / count, 2),
            "server_us_of_a_single_job": round(alone.server_us / (PROBES // 10), 1),
        }

    return asyncio.run(idle())


def waiters(url: str, count: int) -> Figures:
    """Clients that wait for a job each, in one process: connections, and processor time of all while nothing ends."""

    async def wait() -> Figures:
        async with AsyncQueue(QUEUE, url=url) as queue:
            added = await queue.add_bulk([NewJob("noop", {}) for _ in range(count)])
            waits = [asyncio.ensure_future(job.wait(None)) for job in added]
            with Meter(url) as meter:
                await asyncio.sleep(1)
                meter.begin()
                await asyncio.sleep(IDLE_S)
                cost = meter.end()
                connections = meter.connections()
            await asyncio.to_thread(asyncio.run, _work_off("ours", url, count, _noop))
            await asyncio.gather(*waits)
        return {
            "connections": connections,
            "commands_per_s": round(cost.commands / cost.seconds, 2),
            "server_ms_per_s": round(cost.server_us / cost.seconds / 1000, 2),
            "client_ms_per_s": round(cost.client_us / cost.seconds / 1000, 2),
        }

    return asyncio.run(wait())


def flow(url: str, nodes: int) -> Figures:
    """A flow of layers of 100 nodes, each of which waits for one before it: submitted, and worked off."""
    each = [Node(f"n{n}", deps=[f"n{n - 100}"] if n >= 100 else []) for n in range(nodes)]
    with Meter(url) as meter, FlowProducer(url=url) as producer, worker_apart(url, QUEUE, _noop_job, 32):
        producer.submit(Dag("warm", [Node("up")], QUEUE)).wait(60)
        before = _bytes(url)
        meter.watch_slow_calls()
        meter.begin()
        submitted = producer.submit(Dag("scale", each, QUEUE))
        cost = meter.end()
        meter.begin()
        submitted.wait(3600)
        worked = meter.end()
        longest = max([meter.transaction_ms(), *meter.slowest_functions().values()])
        kib = _kib_each(url, before, nodes)
    return {
        "submit_s": round(cost.seconds, 2),
        "client_us_a_node": round(cost.client_us / nodes, 1),
        "submit_server_us_a_node": round(cost.server_us / nodes, 1),
        "work_server_us_a_node": round(worked.server_us / nodes, 1),
        "kib_a_node": kib,
        "longest_call_ms": round(longest, 2),
    }


MEASURES: dict[str, tuple[Callable[[str, int], Figures], int]] = {
    "records": (records, 10_000),
    "retention": (retention, 10_000),
    "jobs": (jobs, 1_000_000),
    "upgrade": (upgrade, 1_000_000),
    "queues": (queues, 5_000),
    "schedules": (schedules, 10_000),
    "workers": (workers, 200),
    "waiters": (waiters, 1_000),
    "flow": (flow, 100_000),
}
"""What is measured, and at which number of them."""
WITHOUT_A_TENTH = ("records", "retention")


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--share", type=float, default=1.0, help="of each number (default 1)")
    arguments = parser.parse_args()
    logging.getLogger("orchestration_queue").setLevel(logging.ERROR)  # thousands of jobs fail here
    report: dict[str, object] = {}
    for name in arguments.only:
        measure, most = MEASURES[name]
        most = max(10, int(most * arguments.share))
        found = {}
        for count in (most,) if name in WITHOUT_A_TENTH else (most // 10, most):
            print(f"{name}: {count:,}", file=sys.stderr)
            with server() as url:
                found[count] = measure(url, count)
        report[name] = {"what": measure.__doc__, "at": found}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
