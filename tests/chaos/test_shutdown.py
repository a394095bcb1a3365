"""Workers are told to stop in the middle of many short jobs; what they have not started, the next one runs."""

from __future__ import annotations

from collections import Counter

import pytest
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.options import JobOptions
from orchestration_queue.states import JobState
from tests.chaos.books import counted, mistakes
from tests.chaos.workers import cli_worker
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]  # it starts seven processes, on however busy a machine

JOBS = 1500
KINDS = [JobOptions(), JobOptions(), JobOptions(priority=2), JobOptions(lifo=True)]
DISMISSALS = (302, 1102, 503, 1203, 600, 1000)
"""These jobs dismiss their worker: two of each kind, with some jobs of their kind around them."""


def test_workers_stopped_at_any_moment_leave_every_job_to_be_run_once(
    server_url: str, queue_name: str, raw: redis.Redis
) -> None:
    ran_by: Counter[object] = Counter()
    with Queue(queue_name, url=server_url) as queue:
        jobs = queue.add_bulk(
            [
                NewJob("dismiss", {}, KINDS[n % len(KINDS)])
                if n in DISMISSALS
                else NewJob("work", {"seconds": 0}, KINDS[n % len(KINDS)])
                for n in range(JOBS)
            ]
        )

        def done() -> int:
            return counted(raw, queue.keys.metrics_completed)

        for _ in DISMISSALS:
            before = done()
            with cli_worker(queue_name, server_url, concurrency=8, lease_s=60) as worker:
                assert worker.wait(60) == 0
            assert before < done() < JOBS
            assert raw.xpending(queue.keys.stream, "workers")["pending"] == 0
            assert int(raw.get(queue.keys.list_active) or 0) == 0
        with cli_worker(queue_name, server_url, concurrency=8, lease_s=60):
            wait_until_sync(lambda: done() == JOBS, "the last worker to do the rest")
        for job in jobs:
            record = job.refresh()
            assert (record.state, record.stalled_count, record.attempts_made) == (JobState.COMPLETED, 0, 0)
            assert raw.llen(queue.keys.log(job.id)) == 1
            ran_by[record.result["pid"]] += 1
    assert len(ran_by) == len(DISMISSALS) + 1
    assert mistakes(raw, queue.keys, completed=JOBS) == {}
