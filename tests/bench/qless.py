"""qless's queues, worked by this package and by reqless: ``python -m tests.bench.qless``.

Both pop and complete no-op jobs on one server, one process each, in turns: reqless as its client offers it, job by
job; ours job by job, several at a time, and by a worker. Then, with `--hold` waiting jobs, the longest time that any
command holds the server, from its slow log. Prints JSON: medians of several runs, and ours divided by reqless's; and
the least processor time of client and server a job, which a busy machine does not change as much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import redis

from orchestration_queue.wires.qless import QlessClient, QlessJob, QlessWorker, QlessWorkerOptions
from tests.bench.holds import LIMIT_MS, REPEATS
from tests.bench.server import Meter, server
from tests.holds import watch_commands

_CHUNK = 5_000
_MANY = 100


def _fill(client: redis.Redis, jobs: int) -> None:
    for first in range(0, jobs, _CHUNK):
        with client.pipeline(transaction=False) as pipeline:
            execute: Any = pipeline.execute_command
            for number in range(first, min(first + _CHUNK, jobs)):
                words = ("put", 1 + number / 1000, "bench", "q", f"j{number}", "K", '{"n": 1}', 0, "retries", 5)
                execute("FCALL", "qless", 0, *words)
            pipeline.execute()
        print(f"\r{min(first + _CHUNK, jobs):,} of {jobs:,}", end="", file=sys.stderr)
    print(file=sys.stderr)


def _reqless(url: str, jobs: int) -> None:
    from reqless import Client

    client = Client(url, hostname="bench")
    queue: Any = client.queues["q"]
    for _ in range(jobs):
        queue.pop().complete()
    client.redis.close()


def _one_by_one(url: str, jobs: int) -> None:
    with QlessClient(url=url) as client:
        for _ in range(jobs):
            (job,) = client.pop("q")
            client.complete(job)


def _many_at_a_time(url: str, jobs: int) -> None:
    with QlessClient(url=url) as client:
        for _ in range(0, jobs, _MANY):
            client.complete_many(client.pop("q", _MANY))


def _worker(url: str, jobs: int) -> None:
    async def run() -> None:
        left = [jobs]

        async def handle(_: QlessJob) -> None:
            left[0] -= 1
            if not left[0]:
                worker.stop()

        worker = QlessWorker("q", handle, url=url, options=QlessWorkerOptions(concurrency=_MANY))
        await worker.run()

    asyncio.run(run())


CONTENDERS: dict[str, Callable[[str, int], None]] = {
    "reqless": _reqless,
    "ours, one by one": _one_by_one,
    f"ours, {_MANY} at a time": _many_at_a_time,
    f"our worker, {_MANY} slots": _worker,
}


def _rates(url: str, client: redis.Redis, jobs: int, runs: int) -> dict[str, Any]:
    figures: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    costs: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with QlessClient(url=url) as ours, Meter(url) as meter:
        for _ in range(runs):
            for name, work in CONTENDERS.items():
                client.flushall()
                ours.length("q")
                _fill(client, jobs)
                meter.begin()
                work(url, jobs)
                cost = meter.end()
                figures[name].append(round(jobs / cost.seconds))
                costs[name].append(round((cost.client_us + cost.server_us) / jobs, 1))
                assert client.zcard("ql:completed") == jobs
                print(f"{name}: {figures[name][-1]:,.0f}/s", file=sys.stderr)
    median = {name: statistics.median(found) for name, found in figures.items()}
    ratios = {name: round(found / median["reqless"], 2) for name, found in median.items()}
    least = {name: min(found) for name, found in costs.items()}
    cheaper = {name: round(least["reqless"] / found, 2) for name, found in least.items()}
    processor = {"us_a_job": least, "reqless_to": cheaper}
    return {"per_second": median, "to_reqless": ratios, "processor": processor, "runs": figures}


def _calls(client: QlessClient, jobs: int) -> dict[str, Callable[[], object]]:
    held: list[QlessJob] = []

    def pop(count: int) -> Callable[[], object]:
        return lambda: held.extend(client.pop("q", count))

    return {
        "put": lambda: client.put("q", "K", {}),
        "put, tags and depends": lambda: client.put("q", "K", {}, tags=["t"], depends=[f"j{jobs - 1}"]),
        "pop, 1": pop(1),
        "pop, 100": pop(100),
        "complete": lambda: client.complete(held.pop()),
        "complete_many, 20": lambda: client.complete_many([held.pop() for _ in range(20)]),
        "fail": lambda: client.fail(held.pop(), "g", "m"),
        "retry": lambda: client.retry(held.pop()),
        "heartbeat": lambda: client.heartbeat(held[0]),
        "peek, 25": lambda: client.peek("q", 25),
        "get": lambda: client.get(f"j{jobs // 2}"),
        "jobs": lambda: client.jobs("q", "running"),
        "queues": client.queues,
        "length": lambda: client.length("q"),
        "stats": lambda: client.stats("q"),
        "workers": client.workers,
        "set_priority": lambda: client.set_priority(f"j{jobs // 2}", 3),
        "tag": lambda: client.tag(f"j{jobs // 2}", "u"),
        "track": lambda: client.track(f"j{jobs // 2}"),
        "failed": lambda: client.failed("g"),
        "unfail": lambda: client.unfail("q", "g"),
        "cancel": lambda: client.cancel(f"j{jobs // 3}"),
        "check, the longest of its calls": client.check,
    }


def _holds(url: str, raw: redis.Redis, jobs: int) -> dict[str, Any]:
    raw.flushall()
    with QlessClient(url=url, worker="bench") as client:
        client.length("q")
        _fill(raw, jobs)
        # 0.00 ms means less than one; to free a log of all calls made the next call take up to 779 ms.
        raw.config_set("slowlog-log-slower-than", 1_000)
        raw.config_set("slowlog-max-len", 100_000)
        report = {}
        for name, call in _calls(client, jobs).items():
            longest, _ = min(watch_commands(raw, call) for _ in range(REPEATS))
            report[name] = longest
            print(f"{name:28}{longest:9.2f} ms", file=sys.stderr)
    return {"jobs": jobs, "limit_ms": LIMIT_MS, "longest_ms": report}


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.qless", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000, help="jobs a run (default 5000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--hold", type=int, default=1_000_000, help="waiting jobs (default 1000000); 0 for no holds")
    arguments = parser.parse_args()
    with server() as url, redis.Redis.from_url(url) as client:
        report: dict[str, Any] = {"rates": _rates(url, client, arguments.jobs, arguments.runs)}
        if arguments.hold:
            report["holds"] = _holds(url, client, arguments.hold)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
