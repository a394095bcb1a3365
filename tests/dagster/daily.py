"""Assets whose functions run on workers: the worker and the test load this module."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import os

import dagster as dg

from orchestration_queue.dagster import queue_asset
from orchestration_queue.options import JobOptions
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

tasks = Tasks(queue="daily")


@queue_asset(tasks, arguments={"rows": 842}, checks=["not_empty"], queue=os.environ.get("TEST_QUEUE"))
def counted(rows: int) -> dict[str, object]:
    """How many flights there were."""
    return {"rows": rows, "pid": os.getpid(), "checks": {"not_empty": rows > 0}}


@queue_asset(
    tasks,
    dg.AssetSpec(["lake", "clean"], deps=["counted"], group_name="lake"),
    arguments=lambda context: {"day": context.partition_key},
    options=JobOptions(attempts=2),
    partitions_def=dg.StaticPartitionsDefinition(["2013-01-01", "2013-01-32"]),
    queue=os.environ.get("TEST_QUEUE"),
)
def clean(job: ActiveJob, day: str) -> dict[str, object]:
    """Flights without mistakes."""
    if job.attempt == 1:
        raise ConnectionError("the lake froze")
    return {"day": day}
