"""Fan out: one job returns a list, a task runs once per element, and a final task gets all results in order.

Prints::

    {'count': 5}
    5 readings, 2.0 on average
"""

from orchestration_queue import ActiveJob, DagBuilder, FlowProducer, JobOptions, Queue, Tasks, WorkerOptions
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="sensors")


@tasks.task
def stations() -> list[str]:
    """List what is there today."""
    return [f"station-{number}" for number in range(5)]


@tasks.task(options=JobOptions(attempts=3))
def read(station: str) -> int:
    """Read one of them."""
    return int(station.removeprefix("station-"))


@tasks.task
def average(job: ActiveJob) -> str:
    """Read the results a few hundred at a time, however many there are."""
    readings = list(job.map_results("readings"))
    return f"{len(readings)} readings, {sum(readings) / len(readings)} on average"


if __name__ == "__main__":
    dag = DagBuilder("daily", queue="sensors")
    found = dag.add(stations.node("stations")())
    readings = dag.add(read.map("readings", over=found, as_="station"))
    dag.add(average.node("average", deps=[readings])())

    with (
        Queue("sensors") as queue,
        running_worker(queue, tasks, options=WorkerOptions(concurrency=8)),
        FlowProducer() as flows,
    ):
        results = flows.submit(dag.build()).wait(timeout=30)
        print(results["readings"])
        print(results["average"])
