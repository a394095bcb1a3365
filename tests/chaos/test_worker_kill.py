"""Workers die in the middle; no job does."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.states import JobState
from tests.processes import worker_process
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

TASKS = "tests.chaos.jobs:tasks"
QUICK = ("--concurrency", "2", "--lock-duration", "1", "--stalled-interval", "0.5", "--promotion-interval", "0.2")


def test_jobs_of_a_killed_worker_are_finished_by_another(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    with Queue(queue_name, url=server_url) as queue:
        jobs = queue.add_bulk([NewJob("work", {"seconds": 0.3}) for _ in range(12)])
        with (
            worker_process(TASKS, queue_name, server_url, *QUICK) as victim,
            worker_process(TASKS, queue_name, server_url, *QUICK) as survivor,
        ):
            logged = [queue.keys.log(job.id) for job in jobs]
            wait_until_sync(
                lambda: any(str(victim.pid) in line for key in logged for line in raw.lrange(key, 0, -1)),
                "the victim to hold a job",
            )
            victim.send_signal(signal.SIGKILL)
            results = [job.wait(timedelta(seconds=20)) for job in jobs]
        assert len(results) == 12
        taken_over = [job for job in jobs if job.refresh().stalled_count]
        assert all(job.record.state is JobState.COMPLETED for job in jobs)
        assert taken_over
        assert all(job.record.result["pid"] == survivor.pid for job in taken_over)
    assert raw.xlen(queue.keys.stream) == 0
    assert raw.zcard(queue.keys.completed) == 12


def test_sigterm_lets_the_running_job_finish_and_exits_cleanly(
    server_url: str, queue_name: str, raw: redis.Redis
) -> None:
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("work", {"seconds": 1})
        with worker_process(TASKS, queue_name, server_url, *QUICK) as worker:
            wait_until_sync(lambda: raw.llen(queue.keys.log(job.id)), "the job to start")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(15) == 0
        assert job.refresh().state is JobState.COMPLETED
        assert raw.xinfo_consumers(queue.keys.stream, "workers") == []


def test_a_second_sigterm_leaves_at_once_and_the_job_to_others(
    server_url: str, queue_name: str, raw: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "worker.log"
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("work", {"seconds": 60})
        with worker_process(TASKS, queue_name, server_url, *QUICK, log=log) as worker:
            wait_until_sync(lambda: raw.llen(queue.keys.log(job.id)), "the job to start")
            worker.send_signal(signal.SIGTERM)
            wait_until_sync(lambda: "is draining" in log.read_text(), "the drain to begin")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(15) != 0
        assert job.refresh().state is JobState.ACTIVE
