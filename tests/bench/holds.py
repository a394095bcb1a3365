"""How long the longest command of each public call holds the server in a queue of a million waiting jobs.

Before that, some of the jobs are delayed and promoted, and moved there and back, so that the stream is not in the order
of the jobs' times. The queue also has 100,000 failed jobs.

``python -m tests.bench.holds [--jobs 1000000]`` prints JSON: for each call the processor time of the server for the
longest of its exchanges in milliseconds, the longest command by the server's slow log, and the limit. A server runs
one command at a time, so this is what all other clients wait. Most calls are repeated and the best counts: the slow log
also counts what other processes take of the processor, and processor time doubles beside busy ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count, islice

import redis

from orchestration_queue import Dag, Every, Flow, FlowProducer, JobOptions, NewJob, Node, Queue
from orchestration_queue.server.clock import now_ms
from tests.bench.server import server
from tests.holds import Judge

LIMIT_MS = 10.0
REPEATS = 5
ONCE = (
    "tags.",
    "tick",
    "flow of 200 nodes, c",
    "flow of 200 nodes, r",
    "flow of 200 nodes, st",
    "retry_jobs",
    "clean failed",
    "drain",
    "obliterate, lifo",
)
CHUNK = 10_000
TAGS = [f"tag-{n}" for n in range(20)]
FILL = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local job = KEYS[2] .. n
  redis.call("HSET", job, "id", n, "name", "task", "data", "{}", "opts", "{}", "timestamp", ARGV[3],
    "attemptsMade", "0", "delay", "0", "priority", "0", "maxAttempts", "0", "state", "waiting")
  if ARGV[4] == "XADD" then
    redis.call("HSET", job, "entry", redis.call("XADD", KEYS[1], "*", "jobId", n, "name", "task"))
  else
    redis.call(ARGV[4], KEYS[1], n)
    redis.call("HSET", job, ARGV[5], ARGV[6])
  end
end
"""
FAILED = 100_000
LESS_URGENT = 'for n = ARGV[1], ARGV[2] do redis.call("HSET", KEYS[1] .. n, "priority", 7) end'
FAIL = """
for n = ARGV[1], ARGV[2] do
  redis.call("HSET", KEYS[2] .. "failed-" .. n, "id", "failed-" .. n, "name", "task", "data", "1", "opts", "{}",
    "state", "failed", "timestamp", n, "attemptsMade", "1", "failedReason", "boom", "failureKind", "ValueError")
  redis.call("ZADD", KEYS[1], n, "failed-" .. n)
end
"""


def fill(client: redis.Redis, queue: Queue, jobs: int, push: str, *fields: str) -> None:
    """Write waiting jobs as a bulk of them leaves them, into the stream or a list."""
    where = queue.keys.stream if push == "XADD" else queue.keys.named(fields[0])
    for first in range(1, jobs + 1, CHUNK):
        client.eval(FILL, 2, where, queue.keys.job(""), first, min(first + CHUNK - 1, jobs), now_ms(), push, *fields)
        print(f"\r{queue.name}: {first + CHUNK - 1:,} of {jobs:,}", end="", file=sys.stderr)
    client.set(queue.keys.id, jobs)
    print(file=sys.stderr)


def disorder(client: redis.Redis, queue: Queue, other: Queue, jobs: int) -> None:
    """Give some entries ids that are far from where their jobs' times say, and fail other jobs."""
    for job_id in map(str, range(jobs // 100, jobs, jobs // 50)):
        queue.get(job_id).change_delay(60)
        queue.get(job_id).promote()
        moved = str(int(job_id) + 1)
        queue.get(moved).move(other.name)
        other.get(moved).move(queue.name)
    for first in range(1, FAILED, 1000):
        client.eval(FAIL, 2, queue.keys.failed, queue.keys.job(""), first, first + 999)


def make_less_urgent(client: redis.Redis, queue: Queue, first: int, last: int) -> None:
    """Give the jobs of a part of the list a later priority."""
    for start in range(first, last + 1, CHUNK):
        client.eval(LESS_URGENT, 1, queue.keys.job(""), start, min(start + CHUNK - 1, last))


def middle(queue: Queue, jobs: int) -> Iterator[str]:
    """Ids of waiting jobs, from the middle on."""
    yield from (str(number) for number in range(jobs // 2, jobs))


def graph(name: str, nodes: int) -> Dag:
    """A root and its dependents, ready only after it."""
    return Dag(name, [Node("root"), *(Node(f"n{n}", deps=["root"]) for n in range(nodes - 1))], name)


def calls(
    queue: Queue, other: Queue, lifo: Queue, urgent: Queue, producer: FlowProducer, jobs: int, listed: int
) -> dict[str, Callable[[], object]]:
    """Every public call that might depend on the length of the queue."""
    ids, late, due = middle(queue, jobs), middle(lifo, listed), middle(urgent, listed)
    flow_ids = (f"f{number}" for number in count())
    flows: list[Flow] = []

    def submit() -> None:
        flow_id = next(flow_ids)
        flows.append(producer.submit(graph(queue.name, 200), flow_id=flow_id))

    def take(priority: int) -> None:
        urgent.add_bulk([NewJob("task", {}, JobOptions(priority=priority)) for _ in range(100)])
        for job in urgent.take(20):
            job.release()

    def cancel_and_retry() -> None:
        job_id = next(ids)
        queue.cancel(job_id)
        queue.get(job_id).retry()

    return {
        "add": lambda: queue.add("task", {}),
        "add_bulk, 10,000": lambda: queue.add_bulk([NewJob("task", {}) for _ in range(10_000)]),
        "add_bulk, 20 tags": lambda: queue.add_bulk([NewJob("task", {}, JobOptions(tags=TAGS)) for _ in range(1000)]),
        "add_bulk, shares": lambda: other.add_bulk([NewJob("task", {}, JobOptions(share="s")) for _ in range(1000)]),
        "add, priority": lambda: queue.add("task", {}, options=JobOptions(priority=3)),
        "add, lifo": lambda: lifo.add("task", {}, options=JobOptions(lifo=True)),
        "take and release, 1st priority": lambda: take(1),
        "take and release, middle priority": lambda: take(5),
        "cancel": lambda: queue.cancel(next(ids)),
        "cancel, lifo": lambda: lifo.cancel(next(late)),
        "cancel, due priority": lambda: urgent.cancel(next(due)),
        "remove": lambda: queue.remove(next(ids)),
        "remove, due priority": lambda: urgent.remove(next(due)),
        "move_jobs, 100": lambda: queue.move_jobs(list(islice(ids, 100)), "other"),
        "move, lifo": lambda: lifo.move_jobs([next(late)], "other"),
        "move, due priority": lambda: urgent.move_jobs([next(due)], "other"),
        "cancel and retry": cancel_and_retry,
        "tag 1,000": lambda: queue.add_bulk([NewJob("task", {}, JobOptions(tags=["t"])) for _ in range(1000)]),
        "tags.move": lambda: queue.tags.move("t", "other"),
        "tags.cancel": lambda: other.tags.cancel("t"),
        "tags.retry": lambda: other.tags.retry("t"),
        "tags.remove": lambda: other.tags.remove("t"),
        "delay 10,000": lambda: other.add_bulk([NewJob("task", {}, JobOptions(delay=0.1)) for _ in range(10_000)]),
        "tick, 10,000 due": lambda: other.take(),
        "remove, lifo": lambda: lifo.remove(next(late)),
        "change_priority": lambda: queue.get(next(ids)).change_priority(2),
        "change_delay": lambda: queue.get(next(ids)).change_delay(60),
        "counts": queue.counts,
        "jobs, first 100": lambda: queue.jobs("waiting", limit=100),
        "jobs, 100 in the middle": lambda: queue.jobs("waiting", limit=100, offset=jobs // 2),
        "jobs, lifo, in the middle": lambda: lifo.jobs("waiting", limit=100, offset=listed // 2),
        "search by name": lambda: queue.search(name="absent"),
        "oldest_ready": queue.oldest_ready,
        "pause": queue.pause,
        "resume": queue.resume,
        "upsert a scheduler": lambda: queue.schedulers.upsert("s", Every(timedelta(hours=1))),
        "flow of 200 nodes, submit": submit,
        "flow of 200 nodes, cancel": lambda: flows[-1].cancel(),
        "flow of 200 nodes, retry": lambda: flows[-1].retry(),
        "flow of 200 nodes, stop": lambda: flows[-1].cancel(),
        "flow of 200 nodes, remove": lambda: flows.pop().remove(),
        "retry_jobs": queue.retry_jobs,
        "clean failed": lambda: queue.clean(timedelta(0), 1000, "failed"),
        "drain": queue.drain,
        "obliterate, lifo": lambda: lifo.obliterate(force=True),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.holds", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="waiting jobs (default 1000000)")
    parser.add_argument("--listed", type=int, help="jobs of each list, LIFO and prioritized (default as many)")
    parser.add_argument("--only", nargs="*", help="calls whose names begin so")
    arguments = parser.parse_args()
    report: dict[str, dict[str, float | str]] = {}
    with server() as url, redis.Redis.from_url(url) as client:
        queue, other, lifo, urgent = (Queue(name, url=url) for name in ("holds", "other", "lifo", "urgent"))
        producer = FlowProducer(url=url)
        queue.counts()  # loads the libraries
        fill(client, queue, arguments.jobs, "XADD")
        disorder(client, queue, other, arguments.jobs)
        listed = arguments.listed or arguments.jobs
        fill(client, lifo, listed, "RPUSH", "lifo", "1")
        fill(client, urgent, listed, "LPUSH", "priority", "3")
        make_less_urgent(client, urgent, listed // 2, listed)
        judge = Judge(client)
        for name, call in calls(queue, other, lifo, urgent, producer, arguments.jobs, listed).items():
            if arguments.only and not name.startswith(tuple(arguments.only)):
                continue
            best = min(judge.hold(call) for _ in range(1 if name.startswith(ONCE) else REPEATS))
            report[name] = {**best._asdict(), "limit_ms": LIMIT_MS}
            print(
                f"{name:34}{best.exchange_ms:8.1f} {best.median_ms:8.1f} {best.command_ms:8.1f} ms  {best.words}",
                file=sys.stderr,
            )
    print(json.dumps({"jobs": arguments.jobs, "calls": report}, indent=2))


if __name__ == "__main__":
    main()
