"""Submit a graph of jobs: each runs once its dependencies have completed, and reads their results by name.

Prints::

    mean 34.5 of 2 parts
    mean 34.5 of 2 parts, nothing having run twice
    high    completed
    low     completed
    mean    completed
"""

from orchestration_queue import ActiveJob, DagBuilder, FlowProducer, Queue, Tasks
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="numbers")


@tasks.task
def extract(first: int, last: int) -> list[int]:
    """Read a part of the numbers."""
    return list(range(first, last))


@tasks.task
def mean(job: ActiveJob) -> str:
    """Take all parts together."""
    parts = job.upstream_results()
    numbers = [number for part in parts.values() for number in part]
    return f"mean {sum(numbers) / len(numbers)} of {len(parts)} parts"


if __name__ == "__main__":
    dag = DagBuilder("numbers", queue="numbers")
    low = dag.add(extract.node("low")(first=0, last=50))
    high = dag.add(extract.node("high")(first=50, last=70))
    dag.add(mean.node("mean", deps=[low, high])())

    with Queue("numbers") as queue, running_worker(queue, tasks), FlowProducer() as flows:
        print(flows.submit(dag.build(), flow_id="numbers-1").wait(timeout=30)["mean"])
        again = flows.submit(dag.build(), flow_id="numbers-1")  # the same id is the same flow
        print(f"{again.wait(timeout=30)['mean']}, nothing having run twice")
        for name, record in sorted(again.records().items()):
            print(f"{name:<7} {record.state}")
