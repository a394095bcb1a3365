"""Workers on machines whose clocks are an hour wrong, or jump while they work: the server's clock counts."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from pathlib import Path
from subprocess import Popen

import pytest
import redis

from orchestration_queue.client import Job, NewJob, Queue
from orchestration_queue.options import JobOptions
from tests.chaos.books import mistakes
from tests.chaos.workers import BUSY_S, cli_worker, is_waiting, kill, odd_worker
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

HOUR_S = 3600.0
LEASE_S = 5.0
"""Living workers keep their jobs, on however busy a machine."""
CLOCKS = {
    "ahead": (HOUR_S, 0.0),
    "behind": (-HOUR_S, 0.0),
    "jumps ahead": (0.0, HOUR_S),
    "jumps back": (0.0, -HOUR_S),
}
"""By how much each is ahead from the start, and jumps when its worker is told to."""
KINDS = {"stream": JobOptions(), "list": JobOptions(priority=2)}


@pytest.fixture
def queue(server_url: str, queue_name: str, raw: redis.Redis) -> Iterator[Queue]:
    with Queue(queue_name, url=server_url) as queue:
        yield queue


def wrong(queue: Queue, url: str, clock: str, concurrency: int = 2) -> AbstractContextManager[Popen[bytes]]:
    """A worker whose clock is wrong, or will be when it jumps."""
    ahead_s, jump_s = CLOCKS[clock]
    return odd_worker(queue.name, url, ahead_s=ahead_s, jump_s=jump_s, concurrency=concurrency, lease=LEASE_S)


def is_running(job: Job) -> bool:
    return len(job.logs()) == 1


def renewed(queue: Queue, raw: redis.Redis, jobs: list[Job]) -> list[object]:
    """When each job's lease was taken or renewed last."""
    return [raw.hget(queue.keys.job(job.id), "lastActive") for job in jobs]


def test_healthy_workers_keep_their_jobs_whatever_other_clocks_say(
    queue: Queue, server_url: str, raw: redis.Redis, tmp_path: Path
) -> None:
    sign = str(tmp_path / "sign")
    jobs = queue.add_bulk(
        [NewJob("hold", {"sign": sign}, KINDS[kind]) for kind in ("stream", "list") for _ in range(3)]
    )
    with ExitStack() as stack:
        right = [stack.enter_context(cli_worker(queue.name, server_url, lease_s=LEASE_S)) for _ in range(2)]
        wait_until_sync(lambda: sum(map(is_running, jobs)) == 2, "the right ones to work")
        odd = [stack.enter_context(wrong(queue, server_url, clock, concurrency=1)) for clock in CLOCKS]
        wait_until_sync(lambda: all(map(is_running, jobs)), "all to work")
        for worker in odd:
            worker.send_signal(signal.SIGUSR1)  # whose clock does not jump does not notice
        for _ in range(3):  # meanwhile each looks for the jobs of the others many times
            before = renewed(queue, raw, jobs)
            wait_until_sync(
                lambda: all(new != old for new, old in zip(renewed(queue, raw, jobs), before, strict=True)),  # noqa: B023
                "all leases to be renewed",
            )
        for worker in (*right, *odd):
            Path(f"{sign}-{worker.pid}").touch()
        who = {job.wait(60)["pid"] for job in jobs}
    assert who == {worker.pid for worker in (*right, *odd)}
    assert [len(job.logs()) for job in jobs] == [1] * 6
    assert [job.refresh().stalled_count for job in jobs] == [0] * 6
    assert mistakes(raw, queue.keys, completed=6) == {}


@pytest.mark.parametrize(("dead", "heir"), [("ahead", "behind"), ("behind", "ahead"), ("jumps ahead", "jumps back")])
def test_a_dead_workers_jobs_are_taken_over_within_the_usual_time(
    queue: Queue,
    server_url: str,
    raw: redis.Redis,
    recovered: Callable[[float, float], None],
    dead: str,
    heir: str,
) -> None:
    with wrong(queue, server_url, dead) as victim:
        wait_until_sync(lambda: is_waiting(raw), "the victim to wait for jobs")
        victim.send_signal(signal.SIGUSR1)
        jobs = queue.add_bulk([NewJob("linger", {"seconds": 60}, options) for options in KINDS.values()])
        wait_until_sync(lambda: all(map(is_running, jobs)), "the victim to run them")
        with wrong(queue, server_url, heir) as survivor:
            wait_until_sync(lambda: is_waiting(raw), "the heir to wait for jobs")
            survivor.send_signal(signal.SIGUSR1)
            assert all(map(is_running, jobs))
            kill(victim)
            killed = time.monotonic()
            assert [job.wait(LEASE_S + BUSY_S)["pid"] for job in jobs] == [survivor.pid] * 2
            recovered(time.monotonic() - killed, LEASE_S + BUSY_S)
    assert [job.refresh().stalled_count for job in jobs] == [1] * 2
    assert mistakes(raw, queue.keys, completed=2) == {}


@pytest.mark.parametrize("clock", CLOCKS)
def test_delayed_jobs_run_at_their_time(queue: Queue, server_url: str, raw: redis.Redis, clock: str) -> None:
    delay_s = 2.0
    with wrong(queue, server_url, clock) as worker:
        wait_until_sync(lambda: is_waiting(raw), "the worker to wait for jobs")
        job = queue.add("work", {"seconds": 0}, JobOptions(delay=timedelta(seconds=delay_s)))
        worker.send_signal(signal.SIGUSR1)
        job.wait(60)
    record = job.refresh()
    assert record.added_at is not None
    assert record.started_at is not None
    waited_s = (record.started_at - record.added_at).total_seconds()
    # The worker knows the server's clock as well as answers are quick.
    assert delay_s - 0.5 <= waited_s < delay_s + BUSY_S
