"""Add a job to a task, wait for its result, and see invalid arguments refused.

The worker runs in a thread so that each example is self-contained. In production it is a separate process, on any
machine: ``oq worker shop:tasks --queue shop``.

Prints::

    shipped 7 boxes to Oslo
    1: completed
    refused: Task 'ship' cannot take these arguments, because boxes: Input should be greater than 0
"""

from typing import Annotated

from pydantic import Field

from orchestration_queue import Queue, Tasks
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="shop")


@tasks.task
def ship(boxes: Annotated[int, Field(gt=0)], to: str) -> str:
    """Work like any other function; its arguments and its result are typed."""
    return f"shipped {boxes} boxes to {to}"


if __name__ == "__main__":
    with Queue("shop") as queue, running_worker(queue, tasks), tasks:
        shipment = ship.add(boxes=7, to="Oslo")
        print(shipment.wait(timeout=30))
        for job in queue.jobs("completed"):
            print(f"{job.id}: {job.record.state}")
        try:
            ship.add(boxes=0, to="Oslo")
        except OrchestrationQueueError as error:
            print("refused:", str(error).partition(";")[0])
