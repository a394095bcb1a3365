"""Tasks for workers that will be killed."""

from __future__ import annotations

import os
import time

from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

tasks = Tasks()


@tasks.task
def work(seconds: float, job: ActiveJob) -> dict[str, object]:
    """Take some time, and say who did it."""
    job.log(f"attempt in process {os.getpid()}")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not job.should_stop:
        time.sleep(0.01)
    return {"pid": os.getpid()}
