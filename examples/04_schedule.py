"""Schedule repeatable jobs: with cron in a time zone, across a change to daylight saving time, and at a fixed interval.

Prints::

    27 March 03:30 EET
    29 March 03:30 EEST
    30 March 03:30 EEST
    3 probes
"""

from datetime import UTC, datetime, timedelta

from orchestration_queue import Cron, Every, JobTemplate, Queue, Tasks
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="reports")


@tasks.task
def probe() -> str:
    """Do something small."""
    return "fine"


if __name__ == "__main__":
    with Queue("reports") as queue:
        nightly = Cron("30 3 * * *", tz="Europe/Helsinki", start=datetime(2038, 3, 26, 12, tzinfo=UTC))
        queue.schedulers.upsert("nightly", nightly, JobTemplate(name="report"))
        for run in queue.schedulers.next_runs("nightly", 3):
            print(f"{run:%d %B %H:%M %Z}")  # in the night to the 28th there is no 03:30

        every = Every(timedelta(milliseconds=200), limit=3)
        queue.schedulers.upsert("probes", every, JobTemplate(name="probe"))
        with queue.events() as events, running_worker(queue, tasks):
            done = 0
            for event in events:
                done += event.type == "completed"
                if done == 3:
                    break
        print(done, "probes")
