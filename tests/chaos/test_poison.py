"""A job that kills every process that runs it ends as crashed, and takes no other job along."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from functools import partial

import pytest
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.states import JobState
from tests.chaos.books import is_quiet, mistakes
from tests.chaos.workers import odd_worker
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

MAX_STALLED = 1
JOBS = 20


class Supervisor:
    """Starts a worker again as soon as it has died."""

    def __init__(self, queue: str, url: str, letters: str) -> None:
        self._worker = partial(odd_worker, queue, url, dead_letter_queue=letters, max_stalled=MAX_STALLED)
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self.starts = 0

    def look(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = self._stack.enter_context(self._worker())
            self.starts += 1

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


@pytest.mark.parametrize(
    "options", [JobOptions(attempts=3), JobOptions(attempts=3, priority=2)], ids=["stream", "list"]
)
def test_a_job_that_kills_its_workers_ends_as_crashed(
    server_url: str, queue_name: str, raw: redis.Redis, options: JobOptions
) -> None:
    letters = QueueKeys(f"{queue_name}-dead")
    with Queue(queue_name, url=server_url) as queue:
        before = queue.add_bulk([NewJob("work", {"seconds": 0}) for _ in range(JOBS // 2)])
        poison = queue.add("poison", options=options)
        after = queue.add_bulk([NewJob("work", {"seconds": 0}) for _ in range(JOBS // 2)])
        with Supervisor(queue_name, server_url, letters.queue) as supervisor:

            def is_over() -> bool:
                supervisor.look()
                return is_quiet(raw, queue.keys, jobs=JOBS + 1)

            wait_until_sync(is_over, "all jobs to end")
        poison.refresh()
        assert all(job.refresh().state is JobState.COMPLETED for job in (*before, *after))
        assert all(job.record.stalled_count == 0 for job in (*before, *after))
    assert supervisor.starts == MAX_STALLED + 2
    assert (poison.record.state, poison.record.attempts_made, poison.record.stalled_count) == (
        JobState.FAILED,
        0,
        MAX_STALLED + 1,
    )
    assert len(raw.lrange(queue.keys.log(poison.id), 0, -1)) == MAX_STALLED + 1
    [letter] = [json.loads(raw.hget(key, "data") or "") for key in raw.scan_iter(letters.job("*"))]
    assert letter["originalJobId"] == poison.id
    assert letter["failedReason"].startswith("crashed: ")
    assert mistakes(raw, queue.keys, completed=JOBS, failed=1) == {}
