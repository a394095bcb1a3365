"""How long the longest command of each public call holds the server in a queue of a million waiting jobs.

``python -m tests.bench.holds [--jobs 1000000]`` prints JSON: for each call the longest of its commands in milliseconds,
from the server's slow log, and the limit. A server runs one command at a time, so this is what all other clients wait.
The slow log counts what other processes take of the processor, too, so most calls are repeated and the best counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count

import redis

from orchestration_queue import Dag, Every, Flow, FlowProducer, JobOptions, NewJob, Node, Queue
from tests.bench.server import server

LIMIT_MS = 10.0
REPEATS = 5
ONCE = ("retry_jobs", "clean failed", "drain", "obliterate, lifo")
CHUNK = 10_000


def fill(queue: Queue, jobs: int, **options: object) -> None:
    """Add waiting jobs, in chunks."""
    values = JobOptions.model_validate(options)
    for first in range(0, jobs, CHUNK):
        queue.add_bulk([NewJob("task", {"n": n}, options=values) for n in range(first, min(first + CHUNK, jobs))])
        print(f"\r{queue.name}: {first + CHUNK:,} of {jobs:,}", end="", file=sys.stderr)
    print(file=sys.stderr)


def middle(queue: Queue, jobs: int) -> Iterator[str]:
    """Ids of waiting jobs, from the middle on."""
    yield from (str(number) for number in range(jobs // 2, jobs))


def graph(name: str, nodes: int) -> Dag:
    """A root and its dependents, ready only after it."""
    return Dag(name, [Node("root"), *(Node(f"n{n}", deps=["root"]) for n in range(nodes - 1))], name)


def calls(queue: Queue, lifo: Queue, producer: FlowProducer, jobs: int) -> dict[str, Callable[[], object]]:
    """Every public call that might depend on the length of the queue."""
    ids, late, flow_ids = middle(queue, jobs), middle(lifo, jobs), (f"f{number}" for number in count())
    flows: list[Flow] = []

    def submit() -> None:
        flow_id = next(flow_ids)
        flows.append(producer.submit(graph(queue.name, 200), flow_id=flow_id))

    return {
        "add": lambda: queue.add("task", {}),
        "add_bulk, 10,000": lambda: queue.add_bulk([NewJob("task", {}) for _ in range(10_000)]),
        "add, priority": lambda: queue.add("task", {}, options=JobOptions(priority=3)),
        "add, lifo": lambda: lifo.add("task", {}, options=JobOptions(lifo=True)),
        "cancel": lambda: queue.cancel(next(ids)),
        "cancel, lifo": lambda: lifo.cancel(next(late)),
        "remove": lambda: queue.remove(next(ids)),
        "remove, lifo": lambda: lifo.remove(next(late)),
        "change_priority": lambda: queue.get(next(ids)).change_priority(2),
        "change_delay": lambda: queue.get(next(ids)).change_delay(60),
        "counts": queue.counts,
        "jobs, first 100": lambda: queue.jobs("waiting", limit=100),
        "jobs, 100 in the middle": lambda: queue.jobs("waiting", limit=100, offset=jobs // 2),
        "jobs, lifo, in the middle": lambda: lifo.jobs("waiting", limit=100, offset=jobs // 2),
        "search by name": lambda: queue.search(name="absent"),
        "oldest_ready": queue.oldest_ready,
        "pause": queue.pause,
        "resume": queue.resume,
        "upsert a scheduler": lambda: queue.schedulers.upsert("s", Every(timedelta(hours=1))),
        "flow of 200 nodes, submit": submit,
        "flow of 200 nodes, cancel": lambda: flows.pop().cancel(),
        "retry_jobs": queue.retry_jobs,
        "clean failed": lambda: queue.clean(timedelta(0), 1000, "failed"),
        "drain": queue.drain,
        "obliterate, lifo": lambda: lifo.obliterate(force=True),
    }


def hold(client: redis.Redis, call: Callable[[], object]) -> tuple[float, str]:
    """Make a call; returns the milliseconds of its longest command, and that command."""
    client.slowlog_reset()
    call()
    entries = [entry for entry in client.slowlog_get(100_000) if not entry["command"].startswith(b"SLOWLOG")]
    longest = max(entries, key=lambda entry: entry["duration"], default=None)
    if longest is None:
        return 0.0, ""
    return longest["duration"] / 1000, b" ".join(longest["command"].split()[:2]).decode()


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.holds", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="waiting jobs (default 1000000)")
    parser.add_argument("--only", nargs="*", help="calls whose names begin so")
    arguments = parser.parse_args()
    report: dict[str, dict[str, float]] = {}
    with server() as url, redis.Redis.from_url(url) as client:
        queue, lifo, producer = Queue("holds", url=url), Queue("lifo", url=url), FlowProducer(url=url)
        fill(queue, arguments.jobs)
        fill(lifo, arguments.jobs, lifo=True)
        client.config_set("slowlog-log-slower-than", 100)
        client.config_set("slowlog-max-len", 100_000)
        for name, call in calls(queue, lifo, producer, arguments.jobs).items():
            if arguments.only and not name.startswith(tuple(arguments.only)):
                continue
            rounds = [hold(client, call) for _ in range(1 if name in ONCE else REPEATS)]
            milliseconds, words = min(rounds)
            report[name] = {"longest_ms": milliseconds, "limit_ms": LIMIT_MS}
            print(f"{name:32}{milliseconds:9.1f} ms  {words}", file=sys.stderr)
    print(json.dumps({"jobs": arguments.jobs, "calls": report}, indent=2))


if __name__ == "__main__":
    main()
