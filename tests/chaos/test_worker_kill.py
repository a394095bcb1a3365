"""Workers die in the middle; no job does."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.states import JobState
from tests.chaos.workers import cli_worker, insist, kill, odd_worker
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

KEPT_S = 60.0
"""A lease that no worker loses here."""


def test_jobs_of_a_killed_worker_are_finished_by_another(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    with Queue(queue_name, url=server_url) as queue:
        held = queue.add_bulk([NewJob("linger", {"seconds": 600}) for _ in range(2)])
        with cli_worker(queue_name, server_url, concurrency=2) as victim:
            wait_until_sync(lambda: all(job.logs() for job in held), "the victim to hold two jobs")
            others = queue.add_bulk([NewJob("work", {"seconds": 0.1}) for _ in range(10)])
            with cli_worker(queue_name, server_url, concurrency=2) as survivor:
                wait_until_sync(lambda: any(job.logs() for job in others), "the survivor to work")
                victim.send_signal(signal.SIGKILL)
                results = [job.wait(60) for job in (*held, *others)]
        assert {result["pid"] for result in results} == {survivor.pid}
        assert all(job.refresh().stalled_count for job in held)
        assert all(job.refresh().state is JobState.COMPLETED for job in (*held, *others))
    assert raw.xlen(queue.keys.stream) == 0
    assert raw.zcard(queue.keys.completed) == 12


def test_a_retry_is_on_time_though_the_worker_that_failed_the_job_is_killed(
    server_url: str, queue_name: str, raw: redis.Redis
) -> None:
    asleep: dict[str, Any] = dict.fromkeys(("block", "promotion_interval", "stalled_interval", "flow_interval"), 600.0)
    with (
        Queue(queue_name, url=server_url) as queue,
        odd_worker(queue_name, server_url, **asleep) as one,
        odd_worker(queue_name, server_url, **asleep) as other,
    ):
        wait_until_sync(lambda: blocked(raw) == 2, "both workers to be idle")
        job = queue.add("falter", options=JobOptions(attempts=2, backoff=Backoff(delay=3.0)))
        wait_until_sync(lambda: raw.zcard(queue.keys.scheduled), "the first attempt to fail")
        failed = next(process for process in (one, other) if str(process.pid) in job.logs()[0])
        kill(failed)
        assert job.refresh().state is JobState.DELAYED
        assert job.wait(60)["pid"] in {one.pid, other.pid} - {failed.pid}


def blocked(raw: redis.Redis) -> int:
    """How many workers wait for jobs."""
    return sum(client["cmd"] == "xreadgroup" for client in raw.client_list() if "b" in client["flags"])


def test_sigterm_lets_the_running_job_finish_and_exits_cleanly(
    server_url: str, queue_name: str, raw: redis.Redis
) -> None:
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("work", {"seconds": 1})
        with cli_worker(queue_name, server_url, lease_s=KEPT_S) as worker:
            wait_until_sync(lambda: raw.llen(queue.keys.log(job.id)), "the job to start")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        assert job.refresh().state is JobState.COMPLETED
        assert raw.xinfo_consumers(queue.keys.stream, "workers") == []


def test_a_second_sigterm_leaves_at_once_and_the_job_to_others(
    server_url: str, queue_name: str, raw: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "worker.log"
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("work", {"seconds": 600})
        with cli_worker(queue_name, server_url, lease_s=KEPT_S, log=log) as worker:
            wait_until_sync(lambda: raw.llen(queue.keys.log(job.id)), "the job to start")
            worker.send_signal(signal.SIGTERM)
            wait_until_sync(lambda: "is draining" in log.read_text(), "the drain to begin")
            assert insist(worker, 25) != 0, "the drain would take half a minute"
        assert job.refresh().state is JobState.ACTIVE
