"""A job that waits for an approval until a deadline, and holds no worker meanwhile.

Prints::

    2.0 needs an approval
    2.0 is deployed, approved by Zoë
    2.1 needs an approval
    2.1 still needs an approval
    2.1 was not approved in time
"""

import time

from orchestration_queue import ActiveJob, Queue, Tasks
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="releases")
REMINDER, DEADLINE = 0.5, 1.0
"""Seconds, for the example; a real release has hours, and costs as little."""


@tasks.task
def deploy(version: str) -> str:
    """Deploy a version: a task of its own, which could have its own queue and machines."""
    return f"{version} is deployed"


@tasks.task
def release(job: ActiveJob, version: str) -> str:
    """Ask for an approval, remind of it once, and give up when the deadline has passed."""
    job.step("ask", print, f"{version} needs an approval", flush=True)
    try:
        approval = job.wait_for("approval", timeout=REMINDER)
    except TimeoutError:
        job.step("remind", print, f"{version} still needs an approval", flush=True)
        try:
            approval = job.wait_for("late approval", timeout=DEADLINE - REMINDER)
        except TimeoutError:
            return f"{version} was not approved in time"
    return f"{job.call('deploy', deploy, version)}, approved by {approval['by']}"


if __name__ == "__main__":
    with Queue("releases") as queue, running_worker(queue, tasks), tasks:
        job = release.add("2.0")
        while not queue.signal(job.id, "approval", {"by": "Zoë"}):  # False until the job waits for it
            time.sleep(0.01)
        print(job.wait(timeout=30))
        print(release.add("2.1").wait(timeout=30))
