"""Whatever was done to the jobs of a long queue before, no call on one job holds the server, and each job runs once.

The judge is the server's own processor time, since a busy machine stretches every wall clock. A walk through the stream
of this test takes about 80 ms of it, and the calls themselves less than one.
"""

from __future__ import annotations

import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue import Dag, Every, Flow, FlowProducer, JobOptions, NewJob, Node, Queue
from orchestration_queue.errors import JobNotFoundError, StateError
from orchestration_queue.server.clock import now_ms
from tests.conftest import start_server
from tests.holds import Judge

JOBS, BATCH = 200_000, 10_000
SHORT_QUEUE = 3_000
"""Longer than what a function searches to the end."""
HOUR_MS = 3_600_000
LIMIT_MS = 10.0
BULK_LIMIT_MS = 25.0
"""Most exchanges of many jobs take 4 ms, and twice that beside busy processes that share the cores' caches."""
LISTED = 100_000
"""A search through such a list takes 3 ms, and one for each of a hundred jobs 300."""
FILL = """
math.randomseed(tonumber(ARGV[3]))
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local job = KEYS[2] .. n
  local entry = redis.call("XADD", KEYS[1], "*", "jobId", n, "name", "work")
  redis.call("HSET", job, "id", n, "name", "work", "data", "1", "opts", "{}", "attemptsMade", "0", "delay", "0",
    "priority", "0", "maxAttempts", "0", "state", "waiting",
    "timestamp", string.format("%.0f", ARGV[4] + math.random(-600000, 600000)))
  if n % 3 > 0 then -- every third is another library's
    redis.call("HSET", job, "entry", entry)
  end
end
"""


class Long:
    """A queue with a long stream, and everything that is done to its jobs.

    Producers' clocks are up to ten minutes apart, and another library added every third job.
    """

    def __init__(self, socket: Path, jobs: int, seed: int) -> None:
        self.raw = redis.Redis(unix_socket_path=str(socket), decode_responses=True)
        self.raw.flushall()
        self.queue, self.other = (Queue(name, url=f"unix://{socket}") for name in ("long", "other"))
        self.socket, self.random, self.jobs = socket, random.Random(seed), jobs
        self.queue.counts()  # loads the libraries
        keys = self.queue.keys
        for first in range(1, jobs + 1, BATCH):
            last = min(first + BATCH - 1, jobs)
            self.raw.eval(FILL, 2, keys.stream, keys.job(""), first, last, seed, now_ms())
        self.raw.set(keys.id, jobs)
        self.touched: set[str] = set()

    def pick(self) -> str:
        """A job: half the time one that something was done to before."""
        if self.touched and self.random.random() < 0.5:
            return self.random.choice(sorted(self.touched))
        job_id = str(self.random.randint(1, self.jobs))
        self.touched.add(job_id)
        return job_id

    def move(self, job_id: str) -> None:
        self.queue.get(job_id).move("other")

    def move_back(self, job_id: str) -> None:
        self.other.get(job_id).move("long")

    def add(self, _: str) -> None:
        options = self.random.choice(
            [{}, {"lifo": True}, {"priority": 3}, {"delay": 60}, {"share": "s"}, {"ordering": {"key": "o"}}]
        )
        self.touched.add(self.queue.add("work", options=JobOptions.model_validate(options)).id)

    def act(self, name: str, job_id: str) -> None:
        """Make a call; a job that is in the wrong state, or gone, refuses it."""
        with suppress(StateError, JobNotFoundError):
            ACTS[name](self, job_id)

    def cancel_and_retry(self, job_id: str) -> None:
        self.queue.cancel(job_id)
        self.queue.get(job_id).retry()

    def take_and_release(self, _: str) -> None:
        for job in self.queue.take(2):
            job.release()

    def pause_and_resume(self, _: str) -> None:
        self.queue.pause()
        self.queue.resume()

    def cpu_ms(self) -> float:
        """The processor time of the server's main thread."""
        usage: dict[str, float] = self.raw.info("cpu")
        return 1000 * (usage["used_cpu_user_main_thread"] + usage["used_cpu_sys_main_thread"])

    def close(self) -> None:
        self.queue.close()
        self.other.close()
        self.raw.close()


ACTS: dict[str, Callable[[Long, str], Any]] = {
    "add": Long.add,
    "cancel": lambda long, job_id: long.queue.cancel(job_id),
    "retry": lambda long, job_id: long.queue.get(job_id).retry(),
    "cancel and retry": Long.cancel_and_retry,
    "promote": lambda long, job_id: long.queue.get(job_id).promote(),
    "delay": lambda long, job_id: long.queue.get(job_id).change_delay(60),
    "delay no more": lambda long, job_id: long.queue.get(job_id).change_delay(0),
    "prioritize": lambda long, job_id: long.queue.get(job_id).change_priority(long.random.randint(1, 5)),
    "prioritize no more": lambda long, job_id: long.queue.get(job_id).change_priority(0),
    "move": Long.move,
    "move back": Long.move_back,
    "remove": lambda long, job_id: long.queue.remove(job_id),
    "release": lambda long, job_id: long.queue.get(job_id).release(),
    "take": Long.take_and_release,
    "pause": Long.pause_and_resume,
    "counts": lambda long, _: long.queue.counts(),
    "oldest": lambda long, _: long.queue.oldest_ready(),
}


@contextmanager
def long_queue(jobs: int, seed: int) -> Iterator[Long]:
    """A private server with a long queue."""
    with tempfile.TemporaryDirectory() as directory:
        process = start_server(Path(directory) / "valkey.sock")
        long = Long(Path(directory) / "valkey.sock", jobs, seed)
        try:
            yield long
        finally:
            long.close()
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_no_call_on_one_job_holds_the_server_whatever_happened_before() -> None:
    with long_queue(JOBS, seed=1) as long:
        for name in ACTS:  # the first calls compile, and open connections
            long.act(name, long.pick())
        slow = []
        for _ in range(600):
            name, job_id = long.random.choice(list(ACTS)), long.pick()
            before = long.cpu_ms()
            long.act(name, job_id)
            if (took := long.cpu_ms() - before) > LIMIT_MS:
                slow.append((name, job_id, took))
        assert not slow


FILL_URGENT = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call("HSET", KEYS[2] .. n, "id", n, "name", "work", "data", "1", "opts", "{}", "attemptsMade", "0",
    "timestamp", n, "state", "waiting", "priority", n <= tonumber(ARGV[3]) and "3" or "7")
  redis.call("LPUSH", KEYS[1], n)
end
"""
FAIL = """
for n = 1, 300 do
  local id = ARGV[1] .. n
  redis.call("HSET", KEYS[2] .. id, "id", id, "name", "work", "data", "1", "opts", "{}", "state", "failed",
    "timestamp", n, "attemptsMade", "1", "failedReason", "boom", "failureKind", "ValueError")
  redis.call("ZADD", KEYS[1], n, id)
end
"""


class Bulk:
    """Calls on many jobs of a long queue, and of one with a long list of jobs of two priorities."""

    def __init__(self, long: Long, socket: Path, jobs: int) -> None:
        self.long, self.queue, self.other = long, long.queue, long.other
        self.urgent = Queue("urgent", url=f"unix://{socket}")
        self.producer = FlowProducer(url=f"unix://{socket}")
        self.numbers = count()
        self.flows: list[Flow] = []
        keys = self.urgent.keys
        for first in range(1, jobs + 1, BATCH):
            last = min(first + BATCH - 1, jobs)
            long.raw.eval(FILL_URGENT, 2, keys.named("priority"), keys.job(""), first, last, jobs // 2)
        long.raw.set(keys.id, jobs)

    def fail(self) -> None:
        keys = self.queue.keys
        self.long.raw.eval(FAIL, 2, keys.failed, keys.job(""), f"failed-{next(self.numbers)}-")

    def add(self, queue: Queue, jobs: int, **options: object) -> None:
        values = JobOptions.model_validate(options)
        queue.add_bulk([NewJob("work", n, values) for n in range(jobs)])

    def fail_tagged(self) -> None:
        self.add(self.queue, 300, tags=["t"])
        self.queue.tags.cancel("t")

    def submit(self) -> Flow:
        nodes = [Node("root"), *(Node(f"n{n}", deps=["root"]) for n in range(199))]
        return self.producer.submit(Dag("long", nodes, "long"), flow_id=f"flow-{next(self.numbers)}")

    def cancel_flow(self) -> None:
        with suppress(StateError):  # it is cancelled
            self.flows[-1].cancel()

    def some(self) -> list[str]:
        first = self.long.random.randint(1, self.long.jobs - 100)
        return [str(first + n) for n in range(100)]

    def take_and_release(self, queue: Queue) -> None:
        for job in queue.take(20):
            job.release()

    def close(self) -> None:
        self.urgent.close()
        self.producer.close()


BULK: dict[str, tuple[Callable[[Bulk], Any], Callable[[Bulk], Any]]] = {
    "add_bulk": (lambda _: None, lambda bulk: bulk.add(bulk.queue, 1000)),
    "add_bulk, tags": (lambda _: None, lambda bulk: bulk.add(bulk.queue, 100, tags=[f"t{n}" for n in range(20)])),
    "add_bulk, shares": (lambda _: None, lambda bulk: bulk.add(bulk.other, 300, share="s")),
    "add_bulk, ordering": (lambda _: None, lambda bulk: bulk.add(bulk.other, 300, ordering={"key": "o"})),
    "take, first priority": (
        lambda bulk: bulk.add(bulk.urgent, 100, priority=1),
        lambda bulk: bulk.take_and_release(bulk.urgent),
    ),
    "take, middle priority": (
        lambda bulk: bulk.add(bulk.urgent, 300, priority=5),
        lambda bulk: bulk.take_and_release(bulk.urgent),
    ),
    "take": (lambda _: None, lambda bulk: bulk.take_and_release(bulk.queue)),
    "take, delayed": (lambda bulk: bulk.add(bulk.other, 500, delay=0.001), lambda bulk: bulk.other.take(1)),
    "move_jobs": (lambda _: None, lambda bulk: bulk.queue.move_jobs(bulk.some(), "other")),
    "retry_jobs": (Bulk.fail, lambda bulk: bulk.queue.retry_jobs()),
    "retry_jobs, kind": (Bulk.fail, lambda bulk: bulk.queue.retry_jobs(kind="ValueError")),
    "clean": (Bulk.fail, lambda bulk: bulk.queue.clean(0, 300, "failed")),
    "clean, kind": (Bulk.fail, lambda bulk: bulk.queue.clean(0, 300, "failed", kind="ValueError")),
    "tags.cancel": (lambda bulk: bulk.add(bulk.queue, 300, tags=["t"]), lambda bulk: bulk.queue.tags.cancel("t")),
    "tags.retry": (Bulk.fail_tagged, lambda bulk: bulk.queue.tags.retry("t")),
    "tags.remove": (Bulk.fail_tagged, lambda bulk: bulk.queue.tags.remove("t")),
    "tags.move": (
        lambda bulk: bulk.add(bulk.queue, 100, tags=["t"]),
        lambda bulk: bulk.queue.tags.move("t", "other"),
    ),
    "flow, submit": (lambda _: None, Bulk.submit),
    "flow, cancel": (lambda bulk: bulk.flows.append(bulk.submit()), lambda bulk: bulk.flows[-1].cancel()),
    "flow, retry": (Bulk.cancel_flow, lambda bulk: bulk.flows[-1].retry()),
    "flow, remove": (Bulk.cancel_flow, lambda bulk: bulk.flows.pop().remove()),
    "schedules": (
        lambda _: None,
        lambda bulk: (
            bulk.queue.schedulers.upsert("s", Every(timedelta(hours=1))),
            bulk.queue.schedulers.remove("s"),
        ),
    ),
    "list": (lambda _: None, lambda bulk: bulk.queue.jobs("waiting", limit=100, offset=bulk.long.jobs // 2)),
    "search": (lambda _: None, lambda bulk: bulk.queue.search(name="work", limit=100)),
}
ENDING: dict[str, Callable[[Bulk], Any]] = {
    "drain": lambda bulk: bulk.queue.drain(delayed=True),
    "drain, list": lambda bulk: bulk.urgent.drain(),
    "obliterate": lambda bulk: bulk.other.obliterate(force=True),
}


@pytest.mark.timeout(300)  # of 100,000 jobs, drained a page at a time
def test_no_call_on_many_jobs_holds_the_server_whatever_happened_before() -> None:
    with long_queue(LISTED, seed=2) as long:
        bulk = Bulk(long, long.socket, LISTED)
        with redis.Redis(unix_socket_path=str(long.socket)) as client:
            judge = Judge(client)
            for _ in range(100):
                long.act(long.random.choice(list(ACTS)), long.pick())
            for name, (prepare, call) in BULK.items():
                holds = []
                for _ in range(3):
                    prepare(bulk)
                    holds.append(judge.hold(partial(call, bulk)))
                assert min(holds).exchange_ms < BULK_LIMIT_MS, (name, min(holds))
            for name, end in ENDING.items():
                # Of hundreds of exchanges, one meets whatever else the machine does.
                hold = judge.hold(partial(end, bulk))
                assert hold.median_ms < LIMIT_MS, (name, hold)
        bulk.close()


@pytest.mark.parametrize("seed", range(3))
def test_each_job_that_waits_after_any_history_runs_once(seed: int) -> None:
    with long_queue(SHORT_QUEUE, seed) as long:
        for _ in range(400):
            long.act(long.random.choice(list(ACTS)), long.pick())
        waits = {"waiting", "delayed", "prioritized", "group-waiting"}
        job_key = long.queue.keys.job("")
        known = {key.removeprefix(job_key) for key in long.raw.scan_iter(f"{job_key}*", count=1000)}
        known = {job_id for job_id in known if ":" not in job_id}
        expected = set()
        for job_id in known:
            state, revoked = long.raw.hmget(job_key + job_id, "state", "revoked")
            if state in waits and not revoked:  # a cancelled job that is retried fails again
                expected.add(job_id)
        for job_id in expected:
            long.act("promote", job_id)
        ran: Counter[str] = Counter()
        while taken := long.queue.take(100):
            for job in taken:
                ran[job.id] += 1
                job.complete()
        assert ran == Counter(dict.fromkeys(expected, 1))
        assert long.raw.xlen(long.queue.keys.stream) == 0
