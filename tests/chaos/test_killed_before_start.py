"""Workers are killed after they were given a job, and before its handler runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.options import JobOptions
from orchestration_queue.states import JobState
from tests.chaos.books import mistakes
from tests.chaos.saboteur import Saboteur
from tests.chaos.workers import BUSY_S, LEASE_S, cli_worker, is_waiting, kill, odd_worker
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

KINDS = {"stream": JobOptions(), "prioritized": JobOptions(priority=3), "newest first": JobOptions(lifo=True)}
MOST_S = LEASE_S + BUSY_S
"""Until another worker has run the job: the lease, a search for stalled jobs, and a new process's start."""
WAIT_S = 6.0
"""How long a victim waits for jobs at a time: long enough to be in the middle of it when there is one."""


@pytest.fixture
def queue(server_url: str, queue_name: str, raw: redis.Redis) -> Iterator[Queue]:
    with Queue(queue_name, url=server_url) as queue:
        yield queue


def test_a_job_delivered_by_the_stream_and_never_started_is_run_by_another(
    queue: Queue, server_url: str, raw: redis.Redis, saboteur: Saboteur, recovered: Callable[[float, float], None]
) -> None:
    with odd_worker(queue.name, saboteur.url, block=WAIT_S) as victim:
        wait_until_sync(lambda: is_waiting(raw), "the victim to wait for jobs")
        saboteur.hold_requests("oq1_exchange")
        job = queue.add("work", {"seconds": 0})
        wait_until_sync(lambda: saboteur.held, "the victim to be about to start the job")
        [consumer] = raw.xinfo_consumers(queue.keys.stream, "workers")
        assert consumer["pending"] == 1
        assert job.refresh().state is JobState.WAITING
        kill(victim)
    killed = time.monotonic()
    with cli_worker(queue.name, server_url) as survivor:
        assert job.wait(MOST_S)["pid"] == survivor.pid
        recovered(time.monotonic() - killed, MOST_S)
    assert len(job.logs()) == 1
    assert job.refresh().stalled_count == 1
    assert mistakes(raw, queue.keys, completed=1) == {}


@pytest.mark.parametrize("kind", ["prioritized", "newest first"])
def test_a_list_job_leaves_its_list_by_its_start_only(
    queue: Queue, server_url: str, raw: redis.Redis, saboteur: Saboteur, kind: str
) -> None:
    with odd_worker(queue.name, saboteur.url, block=WAIT_S) as victim:
        wait_until_sync(lambda: is_waiting(raw), "the victim to wait for jobs")
        saboteur.hold_requests("oq1_exchange")
        job = queue.add("work", {"seconds": 0}, KINDS[kind])
        wait_until_sync(lambda: saboteur.held, "the victim to be about to take the job")
        assert raw.zcard(queue.keys.scheduled) + raw.llen(queue.keys.priority) + raw.llen(queue.keys.lifo) == 1
        kill(victim)
    with cli_worker(queue.name, server_url) as survivor:
        assert job.wait(MOST_S)["pid"] == survivor.pid
    assert job.refresh().stalled_count == 0
    assert mistakes(raw, queue.keys, completed=1) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_whose_worker_died_before_it_heard_of_its_start_is_run_by_another(
    queue: Queue,
    server_url: str,
    raw: redis.Redis,
    saboteur: Saboteur,
    recovered: Callable[[float, float], None],
    kind: str,
) -> None:
    with odd_worker(queue.name, saboteur.url, block=WAIT_S) as victim:
        wait_until_sync(lambda: is_waiting(raw), "the victim to wait for jobs")
        saboteur.hold_replies("oq1_exchange")
        job = queue.add("work", {"seconds": 0}, KINDS[kind])
        wait_until_sync(lambda: job.refresh().state is JobState.ACTIVE, "the start")
        assert int(raw.get(queue.keys.list_active) or 0) == (kind != "stream")
        kill(victim)
    killed = time.monotonic()
    with cli_worker(queue.name, server_url) as survivor:
        assert job.wait(MOST_S)["pid"] == survivor.pid
        recovered(time.monotonic() - killed, MOST_S)
    assert len(job.logs()) == 1
    assert job.refresh().stalled_count == 1
    assert mistakes(raw, queue.keys, completed=1) == {}
