"""Start a small tenant's jobs despite a large tenant's backlog, and give a third tenant twice the share.

Prints::

    acme had added 300 jobs before the others came
    of the next 40 starts: acme 10, bakery 10, chain 20
"""

from collections import Counter

from orchestration_queue import JobOptions, NewJob, Queue, Tasks, WorkerOptions
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="reports")
started: list[str] = []


@tasks.task
def report(tenant: str) -> None:
    """Note whose report it is."""
    started.append(tenant)


if __name__ == "__main__":
    with Queue("reports") as queue:
        queue.shares.set("chain", 2)
        jobs = []
        for tenant, count in (("acme", 300), ("bakery", 30), ("chain", 30)):
            options = JobOptions(share=tenant)
            jobs += queue.add_bulk([NewJob("report", {"tenant": tenant}, options) for _ in range(count)])
        with running_worker(queue, tasks, options=WorkerOptions(concurrency=1)), tasks:
            for job in jobs:
                job.wait(timeout=60)
    print("acme had added 300 jobs before the others came")
    # A few jobs are on their way to workers already when a tenant comes.
    served = Counter(started[8:48])
    print("of the next 40 starts:", ", ".join(f"{tenant} {count}" for tenant, count in sorted(served.items())))
