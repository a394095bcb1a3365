"""Workers die between the steps of their jobs, and in them: no job is lost, and no stored step runs again."""

from __future__ import annotations

import random

import pytest
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.states import JobState
from tests.chaos.step_kills import walk
from tests.chaos.workers import kill, odd_worker
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

JOBS, PAGES, KILLS, CONCURRENCY = 20, 25, 5, 3


def test_jobs_continue_after_their_last_stored_step(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    chance = random.Random(7)
    with Queue(queue_name, url=server_url) as queue:
        jobs = queue.add_bulk([NewJob("read_pages", {"pages": PAGES}) for _ in range(JOBS)])

        def read() -> int:
            return sum(raw.llen(queue.keys.log(job.id)) for job in jobs)

        pids = []
        for number in range(KILLS + 1):
            with odd_worker(queue_name, server_url, concurrency=CONCURRENCY, max_stalled=KILLS) as worker:
                pids.append(worker.pid)
                if number == KILLS:
                    results = [job.wait(120) for job in jobs]
                    break
                enough = read() + chance.randint(5, JOBS * PAGES // (2 * KILLS))
                wait_until_sync(lambda enough=enough: read() >= enough, "some pages")  # type: ignore[misc]
                kill(worker)
        assert all(job.refresh().state is JobState.COMPLETED for job in jobs)
        assert [[step.name for step in job.steps()] for job in jobs] == [[f"page-{n}" for n in range(PAGES)]] * JOBS
        assert {pid for result in results for pid in result} <= set(pids)
        assert any(len(set(result)) > 1 for result in results), "some job continued in another process"
        for job in jobs:
            pages = [int(line) for line in job.logs()]
            assert pages == sorted(pages), "none runs again once a later one has run"
            assert set(pages) == set(range(PAGES))
        assert read() <= JOBS * PAGES + KILLS * CONCURRENCY, "a kill repeats at most the steps that it interrupted"


def test_steps_sleeps_and_calls_outlive_kills_of_workers_and_of_the_server() -> None:
    """A small version of the campaign."""
    report = walk(jobs=300, workers=2, pause_s=1.0, seed=3)
    assert report.is_good, report
    assert report.worker_kills
    assert report.jobs == 300
